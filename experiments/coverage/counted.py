"""Count the intervals of a setting that hold the truth, metric by metric, over many seeds.

Where the truth is not known exactly, a run that is REFERENCE times as long stands for it. An interval that is not
printed cannot miss; how many were printed stands beside the coverage.
"""

import math
import os

import msgspec
import pandas as pd
from scipy import stats

from experiments.coverage.settings import Setting
from experiments.jobs import side_by_side
from experiments.worlds import with_seed
from fleet.records.glossary import PERCENTILES, percentile_name
from fleet.records.metrics import measure
from fleet.records.window import Metric, with_percentiles
from fleet.scenario.scenario import Scenario
from sim.run import simulate

REFERENCE = 40
PROMISED = (0.92, 0.98)
FALSE_ALARM = 1e-3  # of each row of the verdict, where the true coverage is at the border of what is promised
RARE = 0.05  # share of runs that look long enough by luck where the others say that they are not
TIMES = ("wait_s", "round_s", "ttft_s", "tpot_s", "latency_s")
COVERED = (
    "throughput", "rounds_per_s", "load", *TIMES,
    *(percentile_name(name, each) for name in TIMES for each in PERCENTILES),
)  # fmt: skip


class Covered(msgspec.Struct, frozen=True):
    """One metric of one setting over all seeds; shares of runs. `kept`: within what is promised, or rarely printed."""

    setting: str
    metric: str
    truth: float
    source: str
    printed: float
    coverage: float
    bias: float
    times_longer: float
    kept: bool


def covered(setting: Setting, seeds: int) -> list[Covered]:
    """Run a setting with seeds 0, 1, ... and count, metric by metric, how many intervals hold the truth."""
    scenarios = [(with_seed(setting.scenario, seed),) for seed in range(seeds)]
    runs = list(side_by_side(_measured, scenarios, os.cpu_count() or 1))
    reference = {name: Metric(value, math.nan, math.nan, "") for name, value in setting.exact.items()}
    if not reference:
        workload = setting.scenario.workload
        workload = msgspec.structs.replace(workload, requests=REFERENCE * workload.requests)
        reference = _measured(with_seed(msgspec.structs.replace(setting.scenario, workload=workload), seeds))
    source = "exact" if setting.exact else f"a run {REFERENCE} times as long"
    return [
        row_of(setting.name, name, reference[name].value, source, [run[name] for run in runs])
        for name in COVERED
        if name in reference
    ]


def row_of(setting: str, metric: str, truth: float, source: str, runs: list[Metric]) -> Covered:
    """Count one metric's intervals."""
    printed = [run for run in runs if not math.isnan(run.low)]
    hits = sum(run.low <= truth <= run.high for run in printed)
    least, most = stats.binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], len(printed), PROMISED) if printed else (0, 0)
    bias = sum(run.value for run in runs) / len(runs) / truth - 1
    return Covered(
        setting, metric, truth, source,
        printed=len(printed) / len(runs),
        coverage=hits / len(printed) if printed else math.nan,
        bias=bias,
        times_longer=float(pd.Series([run.times_longer for run in runs]).median()),
        kept=bool(len(printed) <= RARE * len(runs) or least <= hits <= most),
    )  # fmt: skip


def _measured(scenario: Scenario) -> dict[str, Metric]:
    return with_percentiles(measure(simulate(scenario)))
