"""Coverage counts the half of runs that did not set the ranges."""

import pytest

from bench.ranges import covered
from bench.serving_rows import fits
from specfleet.experiments.plan.ranges import RUNS


def test_only_runs_that_set_no_range_are_counted() -> None:
    names = [str(number) for number in range(40)]
    hopper = RUNS["dense", "h100", "h200"]
    tpot, ttft = covered(hopper, [(name, 5.0 if fits(name) else 1.0, 9.0) for name in names])
    assert (tpot["first half"], tpot["other half"]) == (sum(map(fits, names)), 40 - tpot["first half"])
    assert tpot["inside, % of the other half"] == pytest.approx(100.0)
    assert ttft["inside, % of the other half"] == 0.0
    assert tpot["its middle"] == "5.00 .. 5.00"
