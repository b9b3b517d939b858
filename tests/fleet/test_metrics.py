"""Metrics of stars with known events; `test_metrics_of_tables.py` has those of written tables."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.records.metrics.measure import combine, measure, measure_targets
from specfleet.fleet.records.metrics.tables import commits_of, rounds_of
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.facts import devices_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim import analytic
from tests.helpers.hand_stars import LINK_S, RETURN_S, VERIFY_S, run_star, values
from tests.helpers.logs import log_of
from tests.helpers.marks import slow
from tests.helpers.stars import star


def constant_star(targets: int, service_s: float, iterations: int = 20) -> Run:
    """One request a target; two of three draft tokens pass each round. The window is `iterations` whole iterations.

    The first target takes 2 x iterations x T_gamma in all, the prefill filling what its rounds leave of that; half of
    it is warm-up, so that all times and edges are exact in floating point.
    """
    T_s = analytic.iteration_s(targets, service_s, RETURN_S)
    scenario = star(
        verifiers={"count": targets},
        drafters={"depth": 3},
        workload={"requests": targets, "new_tokens": 1 + 3 * (2 * iterations - 1)},
        measure={"warm_up_share": 0.5},
    )
    prefill_s = 2 * T_s - (service_s + RETURN_S)
    return run_star(scenario, draft=service_s, verify_prefill=prefill_s)


@pytest.mark.parametrize("targets", range(1, 9))
@pytest.mark.parametrize("service_s", [slow(0.5), 1.0, slow(3.0)])
def test_a_constant_star_measures_the_equations(targets: int, service_s: float) -> None:
    """Both regimes and the border between them, Z = (N - 1) S; equations (8) to (11)."""
    measured = values(constant_star(targets, service_s))
    star_of = targets, service_s, RETURN_S
    idle_s, rate = analytic.idle_s(*star_of), analytic.rounds_per_s(*star_of)
    expected = {
        "throughput": 3 * rate,
        "throughput_per_target": 3 * rate / targets,
        "rounds_per_s": rate,
        "rounds_per_s_per_target": rate / targets,
        "load": analytic.load(*star_of),
        "service_s": service_s,
        "wait_s": analytic.wait_s(*star_of),
        "idle_gap_s": idle_s / targets,
        "return_s": RETURN_S,
        "verify_s": VERIFY_S,
        "communication_s": 2 * LINK_S,
        "acceptance_length": 2,
        "mean_acceptance_length": 3,
        "acceptance_rate": 2 / 3,
        "refused": 0,
    }
    assert {name: measured[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("targets", [2, 8])
def test_a_star_that_repeats_itself_leaves_no_uncertainty(targets: int) -> None:
    measured = measure(constant_star(targets, 1.0, 30))
    known = [metric for metric in measured.values() if not math.isnan(metric.low)]
    assert len(known) > 15
    for metric in known:
        assert (metric.low, metric.high) == pytest.approx((metric.value, metric.value), rel=1e-9, abs=1e-9)


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.integers(1, 2))
def test_equal_rows_have_equal_metrics(drafters: int, targets: int, requests: int, rows: int) -> None:
    """However many streams a scenario states, and where it leaves them out."""
    measured: dict[str, dict[str, float]] = {}
    for streams in range(requests + 2):
        run = run_star(
            star(
                drafters={"count": drafters},
                verifiers={"count": targets, "max_num_seqs": rows},
                workload={"requests": requests, "streams": streams, "new_tokens": {"low": 1, "high": 90}},
            )
        )
        now = values(run)
        assert now == pytest.approx(measured.setdefault(run.digest(), now), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("requests", [1, 4, 7, 10, 40])
def test_one_stream_carries_a_request_each_latency(requests: int) -> None:
    """However few there are: the window begins within a request, and ends with one."""
    workload = {"requests": requests, "streams": 1, "new_tokens": 99}
    measured = values(run_star(star(verifiers={"count": 1}, workload=workload), verify_prefill=5))
    assert measured["carried_requests_per_s"] * measured["latency_s"] == pytest.approx(1)


@pytest.mark.parametrize("requests", [3, 7, 40])
def test_streams_carry_a_request_each_latency(requests: int) -> None:
    """Though all begin at once, and the fleet empties when the first stream ends."""
    workload = {"requests": 3 * requests, "streams": 3, "new_tokens": 99}
    measured = values(run_star(star(verifiers={"count": 1}, workload=workload), verify_prefill=5))
    assert measured["carried_requests_per_s"] * measured["latency_s"] == pytest.approx(3, rel=0.05)


def test_steps_across_the_edge_count_their_part_inside() -> None:
    """Drafts run from 1, 6, 11 and 16 s for 1 s, the last verification ends at 20 s; the window begins at 6.5 s."""
    scenario = star(
        verifiers={"count": 1}, workload={"requests": 1, "new_tokens": 13}, measure={"warm_up_share": 0.325}
    )
    measured = values(run_star(scenario))
    assert measured["load"] == pytest.approx(2.5 / 13.5)
    assert measured["rounds_per_s"] == pytest.approx(3 / 13.5)


def test_truncated_runs_are_measured_to_their_last_token() -> None:
    """Verifications end at 6 and 11 s; at 12 s a draft has begun, and the second request never comes."""
    scenario = star(verifiers={"count": 1}, workload={"requests": 2, "new_tokens": 50}, measure={"warm_up_share": 0})
    rows = run_star(scenario, verify_prefill=1).frame()
    measured = values(make_run(scenario, "engine", log_of(rows[rows.time_s <= 12].to_numpy()), resolve(scenario)))
    assert measured["throughput"] == pytest.approx((1 + 3 + 3) / 11)
    assert measured["load"] == pytest.approx((1 + 1) / 11)


def test_the_drafters_prefill_is_load_but_neither_service_nor_wait() -> None:
    scenario = star(verifiers={"count": 1}, workload={"requests": 1, "new_tokens": 7}, measure={"warm_up_share": 0})
    measured = values(run_star(scenario, draft_prefill=3.0))
    assert (measured["service_s"], measured["wait_s"]) == (1, 0)
    assert measured["load"] == pytest.approx((3 + 1 + 1) / (3 + 2 * (1 + RETURN_S)))


@settings(max_examples=10)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 30), st.floats(0, 1))
def test_every_request_gets_exactly_its_tokens(targets: int, depth: int, new_tokens: int, beta: float) -> None:
    scenario = star(
        verifiers={"count": targets},
        drafters={"depth": depth},
        workload={"requests": 2 * targets, "new_tokens": new_tokens},
        measure={"warm_up_share": 0},
    )
    run = run_star(scenario, Geometric(beta), verify_prefill=0.5)
    commits = commits_of(run.columns()).frame()
    assert (commits.committed >= 1).all()
    assert commits.groupby("request").committed.sum().tolist() == [new_tokens] * 2 * targets
    measured, of_targets = values(run), measure_targets(run)
    assert of_targets.throughput.sum() == pytest.approx(measured["throughput"])
    if new_tokens > 1:
        assert of_targets.rounds_per_s.mean() == pytest.approx(measured["rounds_per_s_per_target"])
    if targets == 1:
        assert measured["throughput"] == pytest.approx(2 * new_tokens / commits.time_s.max())


def test_a_repeated_message_changes_no_metric() -> None:
    run = constant_star(3, 1.0)
    messages = run.frame()[lambda rows: rows.event.isin(["draft-request", "draft", "join"])]
    late = messages.assign(time_s=messages.time_s + 2.25, payload_bytes=1)
    log = log_of([*run.frame().to_numpy(), *late.to_numpy()])
    repeated = make_run(run.header.scenario, "sim", log, run.header.fleet)
    assert repeated.table.num_rows > run.table.num_rows
    assert values(repeated) == values(run)


def test_priorities_show_in_the_waits_of_the_targets() -> None:
    scenario = star(
        verifiers={"count": 6, "priorities": [1]}, drafters={"order": "priority"}, workload={"requests": 60}
    )
    run = run_star(scenario)
    of_targets = measure_targets(run)
    assert of_targets.tag.tolist() == list(range(6))
    assert of_targets.wait_s[0] < of_targets.wait_s[1:].min()
    assert of_targets.throughput[0] > of_targets.throughput[1:].max()
    assert of_targets.tpot_p99_s[0] < of_targets.tpot_p50_s[1:].min()


def test_the_baseline_has_no_drafter_and_no_metrics_of_one() -> None:
    scenario = star(drafters={"count": 0}, workload={"requests": 6, "new_tokens": 21}, measure={"warm_up_share": 0})
    run = run_star(scenario, verify_prefill=5, decode=2)
    measured = values(run)
    absent = {"rounds_per_s", "load", "wait_s", "return_s", "acceptance_length", "refused"}
    assert not measured.keys() & absent
    assert measured["throughput"] == pytest.approx(3 * 21 / (5 + 20 * 2))
    assert (measured["ttft_s"], measured["tpot_p50_s"], measured["latency_p99_s"]) == pytest.approx((5, 2, 45))
    assert measured["requests"] == 6
    of_targets = measure_targets(run)
    assert list(of_targets) == ["tag", "throughput", "ttft_s", "tpot_p50_s", "tpot_p99_s"]
    assert of_targets.ttft_s.mean() == pytest.approx(measured["ttft_s"])


def test_refused_requests_are_counted_among_the_complete_ones() -> None:
    """One of three targets gets drafts, three tokens a round; the others decode alone."""
    scenario = star(
        drafters={"admit": {"policy": "at-most", "sessions": 1}},
        workload={"requests": 3, "new_tokens": 13},
        measure={"warm_up_share": 0},
    )
    run = run_star(scenario, decode=1.5)
    measured = values(run)
    assert (measured["requests"], measured["refused"]) == (3, 2)
    assert len(rounds_of(run.columns())) == 4


def test_idle_drafters_have_no_rounds() -> None:
    scenario = star(
        drafters={"admit": {"policy": "at-most", "sessions": 0}}, workload={"requests": 3, "new_tokens": 13}
    )
    run = run_star(scenario, verify_prefill=1, decode=1)
    measured = values(run)
    assert (measured["rounds_per_s"], measured["load"], measured["refused"]) == (0, 0, 3)
    assert not measured.keys() & {"wait_s", "return_s", "acceptance_length"}
    assert measure_targets(run).rounds_per_s.tolist() == [0, 0, 0]


def test_replications_combine_to_their_mean_and_student_interval() -> None:
    runs = [{"load": Metric(value, 0, 1, "share"), f"only {value}": Metric(1, 1, 1, "s")} for value in (0.4, 0.5, 0.9)]
    combined = combine(runs)
    theory = stats.ttest_1samp([0.4, 0.5, 0.9], 0).confidence_interval(0.95)
    assert combined.keys() == {"load"}
    assert combined["load"].value == pytest.approx(0.6)
    assert (combined["load"].low, combined["load"].high) == pytest.approx((theory.low, theory.high))
    assert math.isnan(combine(runs[:1])["load"].low)


@pytest.mark.parametrize(("drifting", "most"), [(1, False), (2, True), (3, True)])
def test_replications_drift_if_most_of_them_do(drifting: int, most: bool) -> None:
    runs = [{"load": Metric(0.5, 0, 1, "share", 1.0, number < drifting)} for number in range(3)]
    assert combine(runs)["load"].drifting is most


def test_devices_are_counted_once_however_many_stations_share_them() -> None:
    one, other = {"host": {"sharing": "turns"}}, {"other": {"sharing": "turns"}}
    for drafters, targets, scenario in (
        (1, 3, star()),
        (0, 1, star(devices=one, drafters={"device": "host"}, verifiers={"device": "host"})),
        (1, 1, star(devices=one | other, drafters={"device": "host"}, verifiers={"device": "other"})),
        (1, 1, star(devices=other, verifiers={"device": "other"})),
        (1, 3, star(devices=one, drafters={"device": "host"})),
    ):
        assert devices_of(resolve(scenario)) == (drafters, targets)
    assert devices_of(resolve(star(drafters={"place": "target"}))) == (0, 3)
