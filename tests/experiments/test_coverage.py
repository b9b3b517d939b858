"""Intervals that users see keep their promise, through the whole simulator; the table over 400 seeds is a command."""

import math

import pytest

from experiments.coverage.counted import covered, row_of
from experiments.coverage.settings import Setting, closed_star, mm1_truth, open_star
from fleet.records.window import Metric
from tests.helpers.marks import slow


@pytest.mark.parametrize("load", [slow(0.5), slow(0.9)])
def test_open_arrivals_have_intervals_that_cover_or_none(load: float) -> None:
    """At load 0.9, 400 requests are far from enough, and no run says otherwise."""
    rows = covered(Setting("open", open_star(load, 400), mm1_truth(load)), 20)
    assert all(row.kept for row in rows), [row for row in rows if not row.kept]
    printed = {row.metric: row.printed for row in rows}
    assert (printed["wait_s"] > 0.5) == (load == 0.5)
    assert {row.times_longer > 1 for row in rows} == ({True, False} if load == 0.5 else {True})


@pytest.mark.slow
def test_closed_stars_have_intervals_that_cover() -> None:
    rows = covered(Setting("closed", closed_star(5, 150), {}), 30)
    assert all(row.kept for row in rows), [row for row in rows if not row.kept]
    assert {row.metric for row in rows if row.printed > 0.9} >= {"throughput", "wait_s", "tpot_s", "tpot_p90_s"}


def test_a_row_counts_intervals_that_hold_the_truth_among_those_that_are_there() -> None:
    hit, miss, none = Metric(1.0, 0.5, 1.5, "s"), Metric(3.0, 2.5, 3.5, "s"), Metric(2.0, math.nan, math.nan, "s", 4.0)
    row = row_of("", "wait_s", 1.0, "exact", [hit] * 60 + [miss] * 20 + [none] * 20)
    assert (row.printed, row.coverage, row.kept) == (0.8, 0.75, False)
    assert row.bias == pytest.approx(0.6 + 0.6 + 0.4 - 1)
    assert row_of("", "wait_s", 1.0, "exact", [none] * 96 + [miss] * 4).kept
