"""The equations equal the simulation of every star, and refuse every other fleet by its key."""

import re
from typing import Any

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from specfleet.experiments.notes import notes_of
from specfleet.experiments.sweep.cell import analytic_values
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate
from tests.helpers.stars import TABLES

AGREEMENT = {"model": "agreement", "sessions": ["1101"], "unknown": 0.5}
FAR = {"link": {"latency_s": 0.5}}
DEVICE = {"devices": {"host": {"sharing": "turns"}}}

times_s = st.sampled_from([0.0, 0.25, 1.0, 3.0])
some_drafters = st.fixed_dictionaries(
    {"depth": st.integers(1, 4)},
    optional={
        "count": st.sampled_from([0, 1, 1, 2]),
        "order": st.sampled_from(["fifo", "priority", {"policy": "fifo", "limits_per_s": [0.02]}]),
        "admit": st.builds(lambda most: {"policy": "at-most", "sessions": most}, st.integers(1, 6)),
        "device": st.just("host"),
        "group": st.sampled_from(["one", "batch"]),
    },
)
some_verifiers = st.fixed_dictionaries(
    {"count": st.integers(1, 5)},
    optional={
        "priorities": st.just([3, 1]),
        "device": st.just("host"),
        "tiers": st.sampled_from([[{"first": first, "step": {"base_s": 9.0}}] for first in (1, 6)]),
    },
)


def of_tables(tables: dict[str, Any]) -> Scenario:
    """The star of the helpers with these tables; an acceptance model and faults replace its own."""
    merged = {name: TABLES.get(name, {}) | tables[name] for name in tables if name not in ("acceptance", "faults")}
    return make_scenario(TABLES | tables | merged)


def rounds_per_s(scenario: Scenario) -> float:
    """Rounds a second of a deterministic star, over 20 iterations in the middle."""
    frame = simulate(scenario).frame()
    drafted_s = frame[(frame.event == "done") & (frame.kind == "draft")].time_s.to_numpy()
    N = scenario.verifiers.count
    return 20 * N / float(drafted_s[30 * N] - drafted_s[10 * N])


@given(
    some_drafters, some_verifiers, st.sampled_from([0.0, 1.0]), st.sampled_from([0.5, 1.0, 2.0]),
    st.tuples(times_s, times_s, times_s, times_s),
)  # fmt: skip
def test_equations_equal_simulation_or_refuse(
    drafters: dict[str, Any], verifiers: dict[str, Any], beta: float, draft_s: float, times: tuple[float, ...]
) -> None:
    verify_s, latency_s, catch_up_s, pause_s = times
    assume(verify_s + latency_s > 0)
    profile = {
        "name": "drawn", "draft": {"base_s": draft_s}, "verify": {"base_s": verify_s}, "decode": {"base_s": 2.0},
        "link": {"latency_s": latency_s}, "catch_up_s": catch_up_s,
        "overhead": {"own": {"drafter": {"queued": {"mean_s": pause_s}, "woken": {"mean_s": pause_s}}}},
    }  # fmt: skip
    rounds = 60
    if drafters.get("count") == 0:  # the other keys have no effect
        drafters = {"count": 0}
    if drafters.get("order") != "priority":
        verifiers.pop("priorities", None)
    content = (
        (DEVICE if "device" in drafters | verifiers else {}) | {
            "profile": profile, "drafters": drafters, "verifiers": verifiers,
            "acceptance": {"model": "geometric", "beta": beta},
            "workload": {
                "requests": verifiers["count"], "prompt_tokens": 10,
                "new_tokens": rounds * (drafters.get("depth", 5) + 1 if beta else 1),
            },
        }
    )  # fmt: skip
    try:
        scenario = make_scenario(content)
    except InputError:  # keys that exclude each other
        reject()
    if not analytic_values(scenario):
        keys = "|".join(drafters | verifiers)
        with pytest.raises(
            InputError,
            match=rf"and (workload\.streams|(drafters|verifiers)\.({keys})(\.limits_per_s)?) makes this another",
        ):
            predict(scenario)
        return
    prediction = predict(scenario)
    if drafters.get("order") == "priority":  # urgent requests arrive in the delay, and others wait
        assume(pause_s == 0)
    assert rounds_per_s(scenario) == pytest.approx(prediction.rounds_per_s, rel=1e-9)


@settings(max_examples=10)
@given(st.lists(st.sampled_from([0.5, 1.0, 2.53, 4.01, 7.37]), min_size=2, max_size=4, unique=True), st.integers(1, 2))
def test_unlike_targets_are_simulated_as_they_are_played(verify_s: list[float], each: int) -> None:
    tiers = [{"first": 1 + each * place, "step": {"base_s": time_s}} for place, time_s in enumerate(verify_s)]
    N, rounds = each * len(verify_s), 200
    workload = {"requests": N, "prompt_tokens": 10, "new_tokens": rounds}
    nothing = {"model": "geometric", "beta": 0.0}
    scenario = of_tables({"verifiers": {"count": N, "tiers": tiers}, "workload": workload, "acceptance": nothing})
    star, frame = predict(scenario), simulate(scenario).frame()
    done = frame[(frame.event == "done") & (frame.kind == "draft")]
    done = done[done.time_s <= done.groupby("tag").time_s.max().min()].iloc[20 * N :]
    per_s = done.groupby("tag").time_s.agg(lambda times_s: (len(times_s) - 1) / (times_s.iloc[-1] - times_s.iloc[0]))
    for row, after in zip(star.targets, [*star.targets[1:], None], strict=True):
        of_range = per_s[row.first - 1 : after.first - 1 if after else N]
        assert of_range.mean() == pytest.approx(row.rounds_per_s, rel=0.05)
    drafted_per_s = (len(done) - 1) / float(done.time_s.iloc[-1] - done.time_s.iloc[0])
    assert drafted_per_s == pytest.approx(star.rounds_per_s, rel=0.03)
    assert (drafted_per_s == pytest.approx(1 / star.S_s)) == (star.N_full <= N)


def test_a_drafter_refuses_the_target_whose_own_rule_fails() -> None:
    slow = {"first": 2, "profile": {"name": "slow", "draft": {"base_s": 1.0}, "verify": {"base_s": 14.0}}}
    slow["profile"] |= {"decode": {"base_s": 2.0}}
    own = {"name": "own", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}, "decode": {"base_s": 4.0}}
    changes = {"profile": own, "verifiers": {"count": 2, "tiers": [slow]}}
    rule = of_tables(changes | {"drafters": {"admit": "at-most"}})
    rows = predict(of_tables(changes)).targets
    assert [row.N_max for row in rows] == [24, 0]  # 3.69 x 4 s a round: 1 / 14.8 + 23 / (14.8 + 10) is just below 1
    assert [row.standalone_tokens_per_s for row in rows] == [0.25, 0.5]
    frame = simulate(rule).frame()
    assert set(frame[frame.event == "refusal"].station) == {"verifier.2"}
    with pytest.raises(InputError, match=r"drafters\.admit makes this another fleet"):
        predict(rule)


@pytest.mark.parametrize(
    ("key", "tables"),
    [
        ("drafters.place", {"drafters": {"place": "target"}}),
        ("verifiers.aligned", {"drafters": {"place": "target"}, "verifiers": {"aligned": {"policy": "realign"}}}),
        ("drafters.count", {"drafters": {"count": 0}}),
        ("drafters.count", {"drafters": {"count": 2}}),
        ("drafters.overlap", {"drafters": {"overlap": "ahead"}}),
        ("drafters.group", {"drafters": {"group": "batch"}}),
        ("drafters.admit", {"drafters": {"admit": {"policy": "at-most", "sessions": 2}}}),
        ("drafters.warm_up", {"drafters": {"warm_up": {"policy": "after-idle", "idle_gap_s": 0.1, "tokens": 2}}}),
        ("drafters.order.limits_per_s", {"drafters": {"order": {"policy": "fifo", "limits_per_s": [0.0, 0.1]}}}),
        ("drafters.device", DEVICE | {"drafters": {"device": "host"}, "verifiers": {"device": "host"}}),
        ("verifiers.device", DEVICE | {"verifiers": {"device": "host"}}),
        ("verifiers.late", {"verifiers": {"late": "wait"}}),
        ("verifiers.allocate", {"verifiers": {"allocate": {"policy": "fixed", "depth": 2}}}),
        ("workload.arrivals", {"workload": {"arrivals": {"process": "poisson", "per_s": 1.0}}}),
        ("workload.requests", {"workload": {"requests": 2}}),
        ("workload.streams", {"workload": {"streams": 5}}),
        ("acceptance", {"acceptance": AGREEMENT}),
        ("verifiers.patience_s", {"verifiers": {"patience_s": 0.9}}),
        ("verifiers.patience_s", {"verifiers": {"count": 8, "patience_s": 3.9}}),
        ("verifiers.patience_s", {"verifiers": {"tiers": [{"first": 3} | FAR], "patience_s": 1.9}}),
        ("drafters.lease_s", {"drafters": {"lease_s": 3.9}, "verifiers": {"patience_s": 9.0}}),
        (
            "drafters.lease_s",
            {"drafters": {"lease_s": 4.9}, "verifiers": {"tiers": [{"first": 3} | FAR], "patience_s": 9}},
        ),
        (
            "faults",
            {"faults": [{"what": "kill", "node": "drafter"}]}
            | {"drafters": {"lease_s": 9.0}, "verifiers": {"patience_s": 9.0}},
        ),
    ],
)
def test_other_fleets_are_refused_by_their_key(key: str, tables: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"one star of plain rounds, and {key} makes this another fleet; simulate it"):
        predict(of_tables(tables))
    assert analytic_values(of_tables(tables)) == {}


def test_servers_of_a_plan_name_the_keys_of_a_star() -> None:
    keys: dict[str, Any] = {"drafters.group": "batch", "verifiers.late": "decode", "workload.streams": 6}
    servers = scenario_of("star", keys | {"verifiers.max_num_seqs": 8})
    with pytest.raises(InputError, match="for one request at a time --set") as raised:
        predict(servers)
    star = {key: 0 if value == "0" else value for key, value in re.findall(r"--set (\S+)=(\S+)", str(raised.value))}
    assert star.keys() == keys.keys()
    assert predict(scenario_of(servers, star)).N_full == predict(scenario_of("star")).N_full


@pytest.mark.parametrize(
    "tables",
    [
        {"drafters": {"admit": {"policy": "at-most", "sessions": 3}}},
        {"drafters": {"lease_s": 4.1}, "verifiers": {"patience_s": 1.1}},
        {"verifiers": {"tiers": [{"first": 1, "step": {"base_s": 5.0}}]}},
    ],
)
def test_keys_without_effect_leave_a_star(tables: dict[str, Any]) -> None:
    scenario = of_tables(tables)
    assert predict(scenario).N == 3
    assert analytic_values(scenario)


def test_scenarios_without_times_have_no_equations() -> None:
    assert analytic_values(make_scenario({"name": "for the engine", "drafters": {"depth": 3}})) == {}


@pytest.mark.parametrize("count", [3, 12])
def test_a_drafter_admits_n_max_targets_unless_a_number_is_stated(count: int) -> None:
    changes: dict[str, Any] = {"verifiers.count": count, "workload.requests": 24}
    rule = {"policy": "at-most"}
    by_default = simulate(scenario_of("star", changes | {"drafters.admit": rule}))
    N_max = predict(scenario_of("star", changes)).N_max
    stated = simulate(scenario_of("star", changes | {"drafters.admit": rule | {"sessions": N_max}}))
    assert N_max == 8
    assert (by_default.frame().event == "refusal").any() == (count > N_max)
    assert by_default.digest() == stated.digest()


@pytest.mark.parametrize(
    ("plain", "model"),
    [({}, {"model": "geometric", "beta": 0.5}), ({"decode": {"base_s": 1.0}}, {"model": "ratios", "clients": [[0.5]]})],
)
def test_n_max_needs_plain_steps_and_acceptance_of_rounds(plain: dict[str, Any], model: dict[str, Any]) -> None:
    profile = {"name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 1.0}} | plain
    scenario = make_scenario(
        {"name": "s", "profile": profile, "acceptance": model, "drafters": {"admit": {"policy": "at-most"}}}
    )
    with pytest.raises(InputError, match=r"drafters\.admit: N_max needs times .*; state `sessions`"):
        simulate(scenario)


def test_one_command_states_the_times_of_a_star() -> None:
    """S, a verification and a link, one way, whatever the shipped profile says of them."""
    stated = {"profile.draft": "45ms", "profile.verify": "120ms", "link": "15ms"}
    star = predict(scenario_of("star", {"drafters.depth": 5, **stated}))
    assert (star.S_s, star.Z_s, star.N_full) == (pytest.approx(0.045), pytest.approx(0.15), 5)
    assert star.N_max == 8  # 3.2 tokens in 45 ms; 0.12 s a token alone
    profile = scenario_of("star", stated).profile
    assert {profile.sources[key] for key in ("draft", "verify")} == {"stated: by a change of the profile"}
    assert profile.sources["decode"].startswith("assumed")
    assert "draft.base_s" not in profile.sources


def test_a_stated_draft_time_is_that_of_every_draft() -> None:
    """Without idle slowdowns of another machine, unless they are stated, too; a table of numbers leaves them."""
    base, gap_s = scenario_of("star"), 0.02
    for source in ("star", base):
        stated = scenario_of(source, {"profile.draft": "45ms"})
        assert stated.profile.idle.slowdown(gap_s) == 1 < base.profile.idle.slowdown(gap_s)
        assert any("a draft of any depth takes the stated time" in note for note in notes_of(stated))
        slowed = scenario_of(source, {"profile.draft": "45ms", "profile.idle.slowdowns": [1.5]})
        assert slowed.profile.idle.slowdown(gap_s) == 1.5
        part = scenario_of(source, {"profile.draft.base_s": 0.01})
        assert part.profile.idle == base.profile.idle
        assert not notes_of(part)
