"""Metrics of tables written by hand: plain decoding of two tokens a request, so that a few rows make a request."""

import itertools
import math
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.tables import commits_of
from specfleet.fleet.records.metrics.window import with_percentiles
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolve import resolve
from tests.helpers.hand_stars import values
from tests.helpers.logs import log_of
from tests.helpers.stars import star


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
