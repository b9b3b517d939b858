"""Playback of whole runs and of parts of them."""

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.playback import PARTS, Part, parse_parts, playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.helpers.stars import star

RANDOM = {"spread": {"spread": "exponential"}}
DELAYS = {"queued": {"mean_s": 0.07}, "woken": {"mean_s": 0.03} | RANDOM, "after": {"mean_s": 0.02} | RANDOM}
PROFILE = {
    "draft": {"base_s": 1.0} | RANDOM, "draft_prefill": {"base_s": 2.0} | RANDOM, "verify": {"base_s": 4.0} | RANDOM,
    "verify_prefill": {"base_s": 3.0} | RANDOM, "decode": {"base_s": 2.0} | RANDOM, "realign": {"base_s": 0.3} | RANDOM,
    "link": {"latency_s": 0.5} | RANDOM,
    "overhead": {
        "own": {"drafter": DELAYS, "target": DELAYS}, "time_sliced": {"drafter": DELAYS, "target": DELAYS},
    },
}  # fmt: skip
ALLOCATED = {"allocate": {"policy": "goodspeed", "budget": 9}}
ALIGNED: dict[str, Any] = {"drafters": {"place": "target"}, "workload": {"streams": 24}}
SYSTEMS: dict[str, dict[str, Any]] = {
    "a star": {},
    "trees": {"drafters": {"shape": {"kind": "tree", "branching": [2, 1]}}},
    "priorities": {"drafters": {"order": "priority"}, "verifiers": {"count": 4, "priorities": [0, 5, 1]}},
    "admission": {"drafters": {"admit": {"policy": "at-most", "sessions": 2}}},
    "warm-up": {"drafters": {"warm_up": {"policy": "after-idle", "idle_gap_s": 0.5, "tokens": 2}}},
    "turns": {
        "devices": {"host": {"sharing": "turns"}}, "drafters": {"device": "host"}, "verifiers": {"device": "host"},
    },
    "contended": {"devices": {"host": {"sharing": "contended"}}, "verifiers": {"device": "host"}},
    "no drafter": {"drafters": {"count": 0}},
    "shortest queue": {"drafters": {"count": 2, "route": "shortest-queue"}},
    "drafts together": {"drafters": {"group": {"policy": "batch", "most": 2}}},
    "verified together": {"verifiers": {"count": 1}, "workload": {"streams": 3}},
    "chunks": {"verifiers": {"count": 1, "max_num_batched_tokens": 16, "kv_tokens": 192}, "workload": {"streams": 4}},
    "late drafts": {"verifiers": {"count": 2, "late": "decode"}},
    "late drafts in chunks": {
        "verifiers": {"count": 1, "late": "decode", "max_num_batched_tokens": 16, "kv_tokens": 192},
        "workload": {"streams": 4},
    },
    "own drafts": {"drafters": {"place": "target"}, "verifiers": {"count": 2}, "workload": {"streams": 6}},
    "barrier": {"drafters": {"count": 3}, "verifiers": {"count": 1, "late": "wait"} | ALLOCATED},
    "work-conserving": {"drafters": {"count": 3}, "verifiers": {"count": 1} | ALLOCATED},
    "ahead": {"drafters": {"overlap": {"policy": "ahead", "least": 2}}, "verifiers": {"count": 2}},
    "rollback": ALIGNED | {"verifiers": {"count": 1, "max_num_seqs": 4, "aligned": {"policy": "rollback"}}},
    "eqspec": ALIGNED | {"verifiers": {"count": 1, "max_num_seqs": 4, "aligned": {"policy": "realign"}}},
    "exspec": ALIGNED
    | {"verifiers": {"count": 1, "max_num_seqs": 4, "aligned": {"policy": "same-length", "window": 8}}},
}  # fmt: skip


def scenario_of(name: str) -> Scenario:
    return star(**{"profile": PROFILE, "workload": {"requests": 24, "new_tokens": 20}} | SYSTEMS[name])


def routed_by_late_views() -> Run:
    """Return a run whose router receives views late, as a real one does."""
    routed = scenario_of("shortest queue")
    links = playback_of(simulate(routed), ("links",))
    ways_s = {sent: [0.7] * len(ways) if sent[1] == "View" else ways for sent, ways in links.ways_s.items()}
    return simulate(routed, playback=msgspec.structs.replace(links, ways_s=ways_s))


def by_station(run: Run) -> pd.DataFrame:
    return run.frame().sort_values(["station", "seq"], ignore_index=True)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_played_back_whole_is_equal(name: str) -> None:
    """The scenario has another seed. Times are sums of differences, so they are equal up to rounding."""
    check_played_back(simulate(scenario_of(name)))


def test_starts_that_a_message_withdrew_are_withdrawn_again() -> None:
    """Requests that end while their draft is late leave a drafter that was about to start with nothing to do."""
    runs = [simulate(msgspec.structs.replace(scenario_of("late drafts"), seed=seed)) for seed in range(8)]
    assert any(playback_of(run).withdrawn_s.get("drafter") for run in runs)
    for run in runs:
        check_played_back(run)


def check_played_back(run: Run) -> None:
    """Play a run back whole, with another seed."""
    assert replay(run) == []
    other = msgspec.structs.replace(run.header.scenario, seed=run.header.scenario.seed + 1)
    assert simulate(other).digest() != run.digest()
    again = simulate(other, playback=playback_of(run, PARTS))
    pd.testing.assert_frame_equal(by_station(again), by_station(run), check_exact=False, rtol=0, atol=1e-6)


def test_router_views_are_played_back_with_the_links() -> None:
    """The delay of views decides the routes."""
    run = routed_by_late_views()
    assert simulate(run.header.scenario).digest() != run.digest()
    again = simulate(run.header.scenario, playback=playback_of(run, PARTS))
    pd.testing.assert_frame_equal(by_station(again), by_station(run), check_exact=False, rtol=0, atol=1e-6)


def test_played_messages_keep_the_order_of_reading() -> None:
    """A view that arrives while a real router handles a request is read after that request."""
    run = routed_by_late_views()
    rows = run.frame().sort_values("seq", kind="stable")
    of_station = rows.groupby("station")
    before_s, moves = of_station.time_s.shift(), of_station.event.shift(-1) == "start"  # that no request waited for
    close = (rows.station == "router") & (rows.event == "view") & (rows.time_s - before_s < 0.3) & ~moves
    assert close.sum() > 10
    times_s = rows.time_s.where(~close, before_s - 1e-5).sort_index()  # arrival before the message that was read first
    column = run.table.schema.get_field_index("time_s")
    read_late = msgspec.structs.replace(run, kept=run.table.set_column(column, "time_s", pa.array(times_s)))
    again = by_station(simulate(run.header.scenario, playback=playback_of(read_late, PARTS)))
    decided = ["station", "event", "kind", "tag", "request", "epoch", "tokens"]
    routed, were = (of_run[of_run.station == "router"][decided] for of_run in (again, by_station(run)))
    pd.testing.assert_frame_equal(routed, were)


@pytest.fixture(scope="module")
def run() -> Run:
    """Targets on one device, concurrent, and a drafter on another."""
    return simulate(scenario_of("contended"))


def played(run: Run, *parts: Part) -> pd.DataFrame:
    other = msgspec.structs.replace(run.header.scenario, seed=run.header.scenario.seed + 1)
    return by_station(simulate(other, playback=playback_of(run, parts)))


def durations_s(rows: pd.DataFrame) -> dict[Any, list[float]]:
    done = rows[rows.event == "done"]
    return {place: group.duration_s.tolist() for place, group in done.groupby(["station", "kind"])}


def accepted(rows: pd.DataFrame) -> dict[Any, list[int]]:
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    return {place: group.accepted.tolist() for place, group in verified.groupby(["tag", "request"])}


def test_played_steps_take_their_measured_times(run: Run) -> None:
    """Their number is equal only if acceptance is played back; otherwise the first steps repeat."""
    theirs = durations_s(by_station(run))
    for parts in (("steps",), ("steps", "acceptance")):
        ours = durations_s(played(run, *parts))
        for place, times_s in ours.items():
            repeated = np.resize(theirs[place], len(times_s))
            assert times_s == pytest.approx(repeated.tolist())
    assert {place: len(times_s) for place, times_s in ours.items()} == {
        place: len(times_s) for place, times_s in theirs.items()
    }


def test_played_drafts_get_the_slowdown_of_simulated_gaps() -> None:
    """Only the first draft after a simulated gap is slow."""
    scenario = star(
        profile=PROFILE | {"draft": {"base_s": 1.0}, "idle": {"gaps_s": [0.2, 0.3], "slowdowns": [1.0, 1.5]}},
        verifiers={"count": 3, "kind": "replayed"}, workload={"requests": 60},
    )  # fmt: skip
    steps = by_station(simulate(msgspec.structs.replace(scenario, seed=4), playback=playback_of(simulate(scenario))))
    drafts = steps[(steps.kind == "draft") & (steps.station == "drafter")]
    starts, done = (drafts[drafts.event == event].set_index("step") for event in ("start", "done"))
    durations_s = done.duration_s.reindex(starts.index)
    for place, expected_s in ((starts.idle_gap_s > 0.3, 1.5), (starts.idle_gap_s < 0.2, 1.0)):
        assert place.sum() > 50
        np.testing.assert_allclose(durations_s[place], expected_s)


def test_played_acceptance_is_that_of_each_request(run: Run) -> None:
    theirs = accepted(by_station(run))
    assert accepted(played(run, "acceptance")) == theirs
    assert accepted(played(run, "steps", "links", "overhead")) != theirs


@pytest.mark.parametrize(
    "changes", [{"verifiers.count": 6}, {"workload.requests": 48}, {"workload.new_tokens": 60, "drafters.depth": 7}]
)
def test_requests_that_a_run_lacks_accept_as_its_own(run: Run, changes: dict[str, Any]) -> None:
    """Each begins with what a request of the run accepted, and goes on with its next ones."""
    theirs = {request: lengths for (_, request), lengths in accepted(by_station(run)).items()}
    changed = change_scenario(run.header.scenario, changes)
    ours = accepted(by_station(simulate(changed, playback=playback_of(run, ("acceptance",)))))
    assert len(ours) == changed.workload.requests
    for (_, request), lengths in ours.items():
        following = [length for turn in range(24) for length in theirs[(request + turn) % 24]]
        assert lengths == following[: len(lengths)]


def test_played_messages_have_their_measured_delays(run: Run) -> None:
    ours = playback_of(simulate(run.header.scenario, playback=playback_of(run, ("acceptance", "links"))))
    theirs = playback_of(run)
    assert ours.ways_s.keys() == theirs.ways_s.keys()
    for sent, ways_s in theirs.ways_s.items():
        assert ours.ways_s[sent] == pytest.approx(ways_s)


def test_played_overhead_belongs_to_the_same_steps(run: Run) -> None:
    theirs = playback_of(run)
    ours = playback_of(simulate(run.header.scenario, playback=playback_of(run, ("acceptance", "overhead"))))
    assert ours.starts_s["drafter"] == pytest.approx(theirs.starts_s["drafter"])
    assert ours.ends_s["drafter"] == pytest.approx(theirs.ends_s["drafter"])
    assert any(theirs.queued["drafter"])


def test_other_draws_do_not_depend_on_playback(run: Run) -> None:
    """Each kind of draw has its own random stream."""
    same = simulate(run.header.scenario, playback=playback_of(run, ("links",)))
    assert accepted(by_station(same)) == accepted(by_station(run))


def test_headers_name_the_played_run(run: Run) -> None:
    header = simulate(run.header.scenario, playback=playback_of(run)).header
    assert (header.played_of, header.played) == (run.digest(), ("steps", "acceptance"))
    assert run.header.played_of == ""


def test_logs_of_other_scenarios_are_refused(run: Run) -> None:
    other = scenario_of("no drafter")
    header = msgspec.structs.replace(run.header, fleet=simulate(other).header.fleet)
    with pytest.raises(InputError, match="the run to play back is not one of its scenario"):
        playback_of(Run(header, run.table))


@pytest.mark.parametrize(
    ("texts", "parts"),
    [(["all"], PARTS), (["links,steps"], ("steps", "links")), (["links", " overhead"], ("overhead", "links"))],
)
def test_parts_are_named_in_any_order(texts: list[str], parts: tuple[Part, ...]) -> None:
    assert parse_parts(texts) == parts


@pytest.mark.parametrize("texts", [[], ["step"], ["steps,,links"]])
def test_unknown_parts_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="allowed are all, steps, acceptance, overhead, links"):
        parse_parts(texts)
