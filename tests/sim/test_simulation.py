"""The simulated star against theory: equations (8) to (10) exactly, mean values at a stated confidence."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student_t

from specfleet.fleet.records.metrics.measure import measure, measure_targets
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.scenario.names import DRAFTER
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.analytic import idle_s, iteration_s, wait_s
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.quickly import simulated
from tests.helpers.stars import star
from tests.helpers.theory import exponential_round_rate

FALSE_ALARM = 1e-3  # probability of a false alarm of all statistical tests here


def endless(N: int, rounds: int = 40, **tables: Any) -> Scenario:
    """A star with one long request per target, about `rounds` rounds."""
    return star(
        verifiers={"count": N, **tables.pop("verifiers", {})},
        workload={"requests": N, "new_tokens": 6 * rounds},
        acceptance={"model": "geometric", "beta": 1.0},
        **tables,
    )


def profile(S_s: float, Z_s: float, **more: Any) -> dict[str, Any]:
    return {"draft": {"base_s": S_s}, "verify": {"base_s": Z_s}, **more}


def steps(scenario: Scenario, station: str = DRAFTER) -> pd.DataFrame:
    """Finished steps of a station, in order, with their start."""
    rows = simulate(scenario).frame()
    done = rows[(rows.event == "done") & (rows.station == station)]
    starts = rows[(rows.event == "start") & (rows.station == station)].set_index("step")
    return done.assign(begun_s=starts.time_s.reindex(done.step).to_numpy()).sort_values("seq")


def shown(scenario: Scenario, station: str = DRAFTER) -> list[tuple[str, int, float, float]]:
    """(kind, tag, start, end) of the steps of a station."""
    rows = steps(scenario, station)
    return list(zip(rows.kind, rows.tag, rows.begun_s.round(9), rows.time_s.round(9), strict=True))


def middle(scenario: Scenario) -> dict[str, Metric]:
    return measure(simulate(scenario))


# ---- constant times: the equations, to floating-point accuracy


@settings(max_examples=50)
@given(N=st.integers(1, 12), S_s=st.floats(0.01, 10), Z_s=st.floats(0.0, 50))
def test_constant_times_give_equations_8_to_10(N: int, S_s: float, Z_s: float) -> None:
    rows = simulate(endless(N, 10, profile=profile(S_s, Z_s))).frame()
    drafter = rows[rows.station == DRAFTER]
    starts = drafter[(drafter.event == "start") & (drafter.kind == "draft")]
    resolved = slice(3 * N, -N)  # without the first and last rounds
    begun_s = starts.time_s.to_numpy()
    iterations_s = begun_s[resolved][N:] - begun_s[resolved][:-N]
    np.testing.assert_allclose(iterations_s, iteration_s(N, S_s, Z_s), rtol=1e-9)
    gaps_s = starts.idle_gap_s.to_numpy()[resolved]
    whole = gaps_s[: len(gaps_s) // N * N].reshape(-1, N)  # (iterations, requests of one)
    np.testing.assert_allclose(whole.sum(axis=1), idle_s(N, S_s, Z_s), rtol=1e-9, atol=1e-9)
    requested_s = drafter[drafter.event == "draft-request"].set_index(["tag", "epoch"]).time_s
    waits_s = begun_s - requested_s.reindex(pd.MultiIndex.from_frame(starts[["tag", "epoch"]])).to_numpy()
    np.testing.assert_allclose(waits_s[resolved], wait_s(N, S_s, Z_s), rtol=1e-9, atol=1e-9)


# ---- exponential times: the exact value is in the interval


def replicated(scenario: dict[str, Any], name: str, replications: int, confidence: float) -> tuple[float, float]:
    """Interval of a metric over independent replications."""
    values = [measure(simulated(star(**scenario, seed=seed)))[name].value for seed in range(replications)]
    half = student_t.ppf((1 + confidence) / 2, replications - 1) * np.std(values, ddof=1) / np.sqrt(replications)
    return float(np.mean(values) - half), float(np.mean(values) + half)


CELLS = list(itertools.product((1, 3, 8), (0.5, 4.0, 10.0), ("exponential", "constant")))
QUICK = ((8, 4.0, "exponential"),)


@pytest.mark.parametrize(("N", "ratio", "return_spread"), [cell if cell in QUICK else slow(*cell) for cell in CELLS])
def test_exponential_service_gives_the_exact_round_rate(N: int, ratio: float, return_spread: str) -> None:
    """The machine-repairman model, which holds for any distribution of the return if service is exponential.

    N = 8, Z / S = 4 gives 0.96958 rounds a unit of time.
    """
    exact = exponential_round_rate(N, 1.0, ratio)
    scenario = {
        "verifiers": {"count": N},
        "workload": {"requests": N, "new_tokens": 1800 // N + 100},
        "acceptance": {"model": "geometric", "beta": 0.0},
        "profile": {
            "draft": {"base_s": 1.0, "spread": "exponential"},
            "verify": {"base_s": ratio, "spread": return_spread},
        },
    }
    low, high = replicated(scenario, "rounds_per_s", 6, 1 - FALSE_ALARM / len(CELLS))
    assert low <= exact <= high
    assert high - low < 0.35 * exact  # the interval is narrow enough to be a test


# ---- examples


def test_a_star_of_two_step_by_step() -> None:
    scenario = star(
        verifiers={"count": 2}, workload={"requests": 2, "new_tokens": 13}, acceptance={"model": "geometric", "beta": 1}
    )
    assert shown(scenario) == [
        ("prefill", 0, 0, 0), ("draft", 0, 0, 1), ("prefill", 1, 1, 1), ("draft", 1, 1, 2),
        ("draft", 0, 5, 6), ("draft", 1, 6, 7),
    ]  # fmt: skip
    assert shown(scenario, "verifier.2") == [("prefill", 1, 0, 0), ("verify", 1, 2, 6), ("verify", 1, 7, 11)]


def test_a_prefill_at_the_drafter_holds_up_the_queue() -> None:
    prefilling = {"profile": profile(1.0, 4.0, draft_prefill={"base_s": 3.0})}
    scenario = star(verifiers={"count": 2}, workload={"requests": 2, "new_tokens": 2}, **prefilling)
    assert shown(scenario)[:4] == [("prefill", 0, 0, 3), ("draft", 0, 3, 4), ("prefill", 1, 4, 7), ("draft", 1, 7, 8)]


def test_links_add_latency_and_payload_over_bandwidth() -> None:
    slow = {"latency_s": 0.25, "bandwidth_bytes_per_s": 100.0}
    run = simulate(endless(1, 200, link=slow, profile=profile(1.0, 4.0)))
    metrics, rows = measure(run), run.frame()
    sizes = rows[rows.event.isin(["draft-request", "draft"])].groupby("event").payload_bytes
    on_wire_s = sizes.last().sum() / 100
    assert metrics["return_s"].value == pytest.approx(4 + 2 * 0.25 + on_wire_s)
    assert metrics["communication_s"].value == pytest.approx(2 * 0.25 + on_wire_s)


def test_later_tiers_have_longer_links_and_slower_devices() -> None:
    tiers = [{"first": 2, "link": {"latency_s": 1.0}}, {"first": 3, "step": {"base_s": 9.0}}]
    run = simulate(star(verifiers={"count": 3, "tiers": tiers}))
    assert measure_targets(run).return_s.tolist() == pytest.approx([4, 6, 11])


def test_warm_up_tokens_reduce_the_slowdown() -> None:
    idle = {"gaps_s": [0.0, 1.0], "slowdowns": [1.0, 2.0], "recoveries": [1.0, 0.5, 0.25]}
    drafters = {"warm_up": {"policy": "after-idle", "idle_gap_s": 1.0, "tokens": 2}}
    rows = steps(endless(1, 10, profile=profile(1.0, 4.0, idle=idle), drafters=drafters)).iloc[4:-1]
    assert set(rows.kind) == {"warm_up", "draft"}
    drafts = rows[rows.kind == "draft"]
    np.testing.assert_allclose(drafts.time_s - drafts.begun_s, 1.25)


def test_messages_of_a_link_keep_their_order() -> None:
    """A Leave after the next request would stall the simulation."""
    rows = simulate(
        star(link={"latency_s": 2.0, "spread": {"spread": "exponential"}}, profile=profile(1.0, 0.1))
    ).frame()
    arrived = rows[(rows.station == DRAFTER) & rows.event.isin(["draft-request", "leave"])]
    for _, of_target in arrived.groupby("tag"):
        assert of_target.request.is_monotonic_increasing
    assert not (rows.event == "ignored").any()


# ---- shared devices


def shared(sharing: str) -> dict[str, Any]:
    return {"devices": {"host": {"sharing": sharing}}, "drafters": {"device": "host"}}


@pytest.mark.parametrize("N", [1, 2, 5])
def test_time_sliced_stations_add_up_their_work(N: int) -> None:
    metrics = middle(endless(N, 200, **shared("turns"), verifiers={"device": "host"}, profile=profile(1.0, 4.0)))
    assert metrics["rounds_per_s"].value == pytest.approx(1 / (1 + 4), rel=0.01)


def test_contended_stations_slow_each_other_by_their_number() -> None:
    """Two targets verify for 4 s each; while both are active, each advances at half speed.

    Target 1 begins at 1 and is alone until 2. Both then run until target 1 ends at 8; target 2 ends at 9.
    """
    scenario = star(
        verifiers={"count": 2, "device": "host"}, devices={"host": {"sharing": "contended"}},
        workload={"requests": 2, "new_tokens": 2}, profile=profile(1.0, 4.0, contention=[1.0, 2.0]),
    )  # fmt: skip
    assert shown(scenario, "verifier.1")[1] == ("verify", 0, 1, 8)
    assert shown(scenario, "verifier.2")[1] == ("verify", 1, 2, 9)


# ---- baselines and admission


def test_a_target_beyond_N_max_decodes_alone() -> None:
    admit = {"policy": "at-most", "sessions": 2}
    run = simulate(star(drafters={"admit": admit}, profile=profile(1.0, 4.0, decode={"base_s": 0.5})))
    rows = run.frame()
    refused = rows[rows.event == "refusal"]
    assert (refused.note == "the drafter already serves N_max = 2 sessions").all()
    alone = rows[(rows.kind == "decode") & (rows.event == "done")]
    assert set(zip(alone.tag, alone.request, strict=True)) == set(zip(refused.tag, refused.request, strict=True))


def test_memory_for_a_row_serves_as_many_sessions_as_rows_fit() -> None:
    rules = {"within-memory": {"kv_tokens": 3 * 72 - 1}, "at-most": {"sessions": 2}}  # rows of 10 + 50 and 12 tokens
    memory, number = (simulate(star(drafters={"admit": {"policy": rule} | rules[rule]})).frame() for rule in rules)
    decided = ["time_s", "station", "event", "kind", "tag", "request", "base"]
    assert memory[decided].equals(number[decided])
    reason = "the drafter's cache of 215 tokens has no room for a session of 72"
    assert set(memory[memory.event == "refusal"].note) == {reason}


# ---- batched drafts and load


@pytest.mark.parametrize("N", [1, slow(12)])
def test_batched_drafts_are_faster_under_load_alone(N: int) -> None:
    own = profile(0.5, 6.0)
    own["draft"] |= {"per_token_s": 0.3, "per_row_s": 0.1}
    groups = ("one", {"policy": "batch", "most": 8})
    singly, batched = (simulate(endless(N, 100, profile=own, drafters={"group": group})) for group in groups)
    if N == 1:
        assert singly.digest() == batched.digest()
    else:
        assert measure(batched)["throughput"].value > 1.5 * measure(singly)["throughput"].value


def test_the_overhead_of_a_target_is_between_its_steps() -> None:
    overhead = {"own": {"target": {"queued": {"mean_s": 0.5}, "after": {"mean_s": 0.25}}}}
    scenario = star(
        profile=profile(1.0, 4.0, overhead=overhead), drafters={"place": "target"},
        verifiers={"count": 1, "max_num_seqs": 3}, workload={"requests": 7, "streams": 7},
    )  # fmt: skip
    rows = simulate(scenario).frame()
    done = rows[rows.event == "done"].groupby("step")[["time_s", "duration_s"]].first()
    begun_s = rows[rows.event == "start"].groupby("step").time_s.first()
    np.testing.assert_allclose(begun_s.to_numpy()[1:] - done.time_s.to_numpy()[:-1], 0.5)
    np.testing.assert_allclose(done.time_s - begun_s - done.duration_s, 0.25)
