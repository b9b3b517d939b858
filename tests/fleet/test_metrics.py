"""Metrics of stars with known events, and of tables written by hand: of plain decoding, two tokens a request."""

import itertools
import math
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import combine, measure, measure_targets
from specfleet.fleet.records.metrics.tables import commits_of, rounds_of
from specfleet.fleet.records.metrics.window import Metric, with_percentiles
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.facts import devices_of
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim import analytic
from tests.helpers.logs import log_of
from tests.helpers.marks import slow
from tests.helpers.stars import LINK_S, RETURN_S, VERIFY_S, run_star, star, values


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


@pytest.mark.parametrize(
    ("streams", "requests"), [*((1, requests) for requests in (1, 4, 7, 10, 40)), (3, 9), (3, 21), (3, 120)]
)
def test_streams_carry_a_request_each_latency(streams: int, requests: int) -> None:
    """However few requests: the window begins within one, and ends with one; of three all begin at once."""
    workload = {"requests": requests, "streams": streams, "new_tokens": 99}
    measured = values(run_star(star(verifiers={"count": 1}, workload=workload), verify_prefill=5))
    several = {"rel": 0.05} if streams > 1 else {}  # the fleet empties when the first stream ends
    assert measured["carried_requests_per_s"] * measured["latency_s"] == pytest.approx(streams, **several)


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
    runs = [{"load": Metric(value, unit="s"), f"only {value}": Metric(1, 1, 1, "s")} for value in (0.4, 0.5, 0.9)]
    combined = combine(runs)
    theory = stats.ttest_1samp([0.4, 0.5, 0.9], 0).confidence_interval(0.95)
    assert combined.keys() == {"load"}
    assert combined["load"].value == pytest.approx(0.6)
    assert (combined["load"].low, combined["load"].high) == (0.0, pytest.approx(theory.high))
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


def request_rows(number: int, joined_s: float, first_s: float, last_s: float | None, tag: int = 0) -> Iterator[Row]:
    """A request of two tokens after a prompt of ten; without `last_s` its second token never comes."""
    name = verifier_name(tag)
    yield Row(joined_s, name, 0, "join", "real", tag=tag, request=number, tokens=10, goal=12)
    yield Row(first_s, name, 1, "done", "real", 1, "prefill", tag, number, tokens=10)
    if last_s is not None:
        yield Row(last_s, name, 2, "done", "real", 2, "decode", tag, number, base=11, tokens=1)


def run_of(rows: Iterable[Row], targets: int = 1, requests: int = 1, **measured: float) -> Run:
    scenario = star(
        drafters={"count": 0},
        verifiers={"count": targets},
        workload={"requests": requests, "new_tokens": 2},
        measure={"warm_up_share": 0.0, **measured},
    )
    return make_run(scenario, "engine", log_of(rows), resolve(scenario))


def test_latencies_are_those_of_the_requests() -> None:
    """Request n = 1..100 waits n ms for its first token, 2n ms for the second; linear interpolation between ranks."""
    rows = [row for n in range(1, 101) for row in request_rows(n - 1, n, n + 0.001 * n, n + 0.003 * n)]
    measured = measure(run_of(rows, requests=100))
    assert measured["ttft_s"].value == pytest.approx(0.0505)
    assert measured["tpot_s"].value == pytest.approx(0.1010)
    percentiles = with_percentiles(measured)
    assert percentiles["latency_p50_s"].value == pytest.approx(3 * 0.0505)
    assert percentiles["latency_p90_s"].value == pytest.approx(3 * 0.0901)
    assert measured["ttft_s"].drifting  # they rise all the time
    assert percentiles["ttft_p50_s"].drifting
    assert math.isnan(percentiles["ttft_p99_s"].low)  # a hundred requests cannot bracket their 99th percentile
    assert measured["requests"].value == 100


def test_requests_that_complete_in_the_warm_up_are_left_out() -> None:
    rows = [row for n in range(10) for row in request_rows(n, n, n + 0.5, n + 1.0)]
    measured = values(run_of(rows, requests=10, warm_up_share=0.5))
    assert measured["requests"] == 5
    assert measured["throughput"] == pytest.approx(2)


@pytest.mark.parametrize(("warm_up_share", "tokens"), [(0.0, 4), (0.5, 2)])
def test_window_ends_when_the_first_target_is_done(warm_up_share: float, tokens: int) -> None:
    """The fast target ends at 4 s, the slow one at 152 s: warm-up is a share of the former."""
    fast = [row for n in (0, 2) for row in request_rows(n, n, n + 1, n + 2)]
    slow = [row for n in (1, 3) for row in request_rows(n, 50 * n, 50 * n + 1, 50 * n + 2, tag=1)]
    measured = values(run_of([*fast, *slow], targets=2, requests=4, warm_up_share=warm_up_share))
    assert measured["throughput"] == pytest.approx(tokens / (4 - 4 * warm_up_share))


def test_requests_of_one_token_have_no_tpot() -> None:
    joined, first, _ = request_rows(0, 0.0, 1.0, 2.0)
    measured = values(run_of([joined._replace(goal=joined.tokens + 1), first]))
    assert (measured["requests"], measured["latency_s"]) == (1, 1)
    assert "tpot_s" not in measured


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 40))
def test_commits_end_at_the_goal(accepted: list[int], asked: int) -> None:
    """A prompt of ten tokens; verifications continue until the goal, or the log ends."""
    rows = [Row(0.0, verifier_name(0), 0, "join", "real", tokens=10, goal=10 + asked)]
    rows.append(Row(1.0, verifier_name(0), 1, "done", "real", 1, "prefill", tokens=10, base=10))
    base = 11
    for number, length in enumerate(accepted, start=2):
        if base >= 10 + asked:
            break
        rows.append(
            Row(
                float(number), verifier_name(0), number, "done", "real", number, "verify", base=base, tokens=5,
                accepted=length,
            )
        )  # fmt: skip
        base += length + 1
    commits = commits_of(make_run(star(), "engine", log_of(rows), resolve(star())).columns())
    assert commits.committed.sum() == min(base - 10, asked)
    assert (commits.committed >= 1).all()


def test_without_a_complete_request_there_are_no_latencies() -> None:
    measured = values(run_of(request_rows(0, 0.0, 1.0, None)))
    assert measured["throughput"] == 1
    assert not [name for name in measured if name.startswith(("ttft", "tpot", "latency", "requests"))]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_without_a_token_is_refused_with_advice(rows: int) -> None:
    with pytest.raises(InputError, match=r"workload\.requests = 1 .* measure\.warm_up_share = 0\.0"):
        measure(run_of(itertools.islice(request_rows(0, 0.0, 1.0, 2.0), rows)))
