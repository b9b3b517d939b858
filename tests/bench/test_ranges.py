"""Coverage counts the half of runs that did not set the ranges."""

import pytest
from msgspec.structs import replace

from bench.ranges import covered
from bench.serving_rows import MeasuredRun, fits

RUN = MeasuredRun("0", "vllm", "llama-3.1-70b", "h100", 4, "bf16", 1024, 1024, 8, 100.0, 10.0)


def test_only_runs_that_set_no_range_are_counted() -> None:
    runs = [replace(RUN, name=str(number)) for number in range(40)]
    tpot, ttft = covered([(run, 5.0 if fits(run.name) else 1.0, 9.0) for run in runs])
    assert (tpot["first half"], tpot["other half"]) == (sum(fits(run.name) for run in runs), 40 - tpot["first half"])
    assert tpot["inside, % of the other half"] == pytest.approx(100.0)
    assert ttft["inside, % of the other half"] == 0.0
    assert tpot["its middle"] == "5.00 .. 5.00"
