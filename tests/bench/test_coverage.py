"""Printed intervals keep their promise, through the whole simulator; `bench coverage` takes 400 seeds."""

import math

import pytest

from bench.coverage import Setting, closed_star, counted, covered, mm1_truth, open_star
from specfleet.fleet.records.metrics.window import Metric
from tests.helpers.marks import slow


@pytest.mark.parametrize("load", [slow(0.5), slow(0.9)])
def test_open_arrivals_have_intervals_that_cover_or_none(load: float) -> None:
    """At load 0.9, 400 requests are far from enough, and no run says otherwise."""
    rows = covered(Setting("open", open_star(load, 400), mm1_truth(load)), 20)
    assert all(row["kept"] for row in rows), [row for row in rows if not row["kept"]]
    printed = {row["metric"]: row["printed, %"] for row in rows}
    assert (printed["wait_s"] > 50) == (load == 0.5)
    assert {row["times longer"] > 1 for row in rows} == ({True, False} if load == 0.5 else {True})


@pytest.mark.slow
def test_closed_stars_have_intervals_that_cover() -> None:
    rows = covered(Setting("closed", closed_star(5, 150), {}), 30)
    assert all(row["kept"] for row in rows), [row for row in rows if not row["kept"]]
    assert {row["metric"] for row in rows if row["printed, %"] > 90} >= {"throughput", "wait_s", "tpot_s", "tpot_p90_s"}


def test_coverage_counts_hits_among_printed_intervals() -> None:
    hit, miss, none = Metric(1.0, 0.5, 1.5, "s"), Metric(3.0, 2.5, 3.5, "s"), Metric(2.0, math.nan, math.nan, "s", 4.0)
    row = counted(1.0, [hit] * 60 + [miss] * 20 + [none] * 20)
    assert (row["printed, %"], row["coverage, %"], row["kept"]) == (80, 75, False)
    assert row["bias, %"] == pytest.approx(60)
    assert counted(1.0, [none] * 96 + [miss] * 4)["kept"]
