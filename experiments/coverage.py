"""How often the printed 95 % intervals hold the truth: `python -m experiments.coverage`, 400 seeds a setting.

Open arrivals at the drafter are M/M/1, where the truth is known exactly; closed stars are held against one run that is
REFERENCE times as long. An interval that is not printed cannot miss; how many were printed stands beside the coverage.
"""

import argparse
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pandas as pd
from scipy import stats

from experiments.exits import run
from experiments.jobs import side_by_side
from experiments.printing import number, print_table, progress
from experiments.worlds import with_seed
from fleet.files import check_writable, write_file
from fleet.records.metrics import PERCENTILES, measure
from fleet.records.window import Metric
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from sim.run import simulate

SEEDS, REFERENCE = 400, 40
PROMISED = (0.92, 0.98)
TARGETS = 64  # of open arrivals: so many that their prefills hardly wait
FALSE_ALARM = 1e-3  # of each row of the verdict, where the true coverage is at the border of what is promised
RARE = 0.05  # share of runs that look long enough by luck where the others say that they are not
EXPONENTIAL = {"base_s": 1.0, "spread": {"spread": "exponential"}}
COVERED = (
    "throughput", "rounds_per_s", "wait_s", "load",
    *(f"{name}_mean_s" for name in ("ttft", "tpot", "latency")),
    *(f"{name}_p{percent}_s" for name in ("ttft", "tpot", "latency") for percent in PERCENTILES),
)  # fmt: skip


class Setting(NamedTuple):
    """A scenario to run with many seeds; `exact` holds the metrics that theory knows."""

    name: str
    scenario: Scenario
    exact: Mapping[str, float]


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


def settings() -> Iterator[Setting]:
    """Closed stars below, at and above N_full = 5, and open arrivals at four loads."""
    for N in (2, 5, 10):
        yield Setting(f"closed, N = {N}", closed_star(N), {})
    for load, requests in ((0.5, 3000), (0.8, 10000), (0.9, 24000), (0.95, 3000)):
        yield Setting(f"open, load {load:g}", open_star(load, requests), mm1_truth(load))


def closed_star(N: int, requests: int = 1500) -> Scenario:
    """S = 1 s and Z = 4 s, both exponential; requests of a few rounds, each with a prefill before."""
    return make_scenario(
        {
            "name": f"closed star, N = {N}",
            "acceptance": {"model": "geometric", "beta": 0.8},
            "profile": {
                "name": "exponential", "draft": EXPONENTIAL, "verify": EXPONENTIAL | {"base_s": 4.0},
                "verify_prefill": EXPONENTIAL | {"base_s": 4.0},
            },
            "drafters": {"depth": 5},
            "verifiers": {"count": N},
            "workload": {"requests": requests, "prompt_tokens": 10, "new_tokens": 10},
        }
    )  # fmt: skip


def open_star(load: float, requests: int) -> Scenario:
    """M/M/1 at the drafter: requests of two tokens, one from the prefill, one from a round that only drafting takes."""
    return make_scenario(
        {
            "name": f"open arrivals, load {load:g}",
            "acceptance": {"model": "geometric", "beta": 0.5},
            "profile": {
                "name": "exponential", "draft": EXPONENTIAL, "verify": {"base_s": 0.0}, "verify_prefill": EXPONENTIAL,
            },
            "drafters": {"depth": 1},
            "verifiers": {"count": TARGETS},
            "workload": {
                "requests": requests, "prompt_tokens": 1, "new_tokens": 2,
                "arrivals": {"process": "poisson", "per_s": load},
            },
        }
    )  # fmt: skip


def mm1_truth(load: float) -> dict[str, float]:
    """What M/M/1 says: times in it are exponential with rate 1 - load for a service of 1 s; requests are two tokens.

    A target is one, too, for prefills; what leaves such a queue reaches the drafter as a Poisson process again (Burke).
    """
    truth = {"throughput": 2 * load, "rounds_per_s": load, "wait_s": load / (1 - load), "load": load}
    for name, rate in (("ttft", 1 - load / TARGETS), ("tpot", 1 - load)):
        truth[f"{name}_mean_s"] = 1 / rate
        truth |= {f"{name}_p{percent}_s": -math.log(1 - percent / 100) / rate for percent in PERCENTILES}
    return truth


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
    return measure(simulate(scenario))


def main() -> int:
    """Run all settings, or those whose name holds a text; exit status 1 where an interval does not keep its promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs a setting")
    parser.add_argument("--only", default="", help="settings whose name holds this text")
    parser.add_argument("-o", "--out", type=Path, help="write the table here, too (CSV)")
    options = parser.parse_args()
    if options.out is not None:
        check_writable(options.out)
    chosen = [setting for setting in settings() if options.only in setting.name]
    rows: list[Covered] = []
    with progress("coverage", len(chosen)) as advance:
        for setting in chosen:
            rows += covered(setting, options.seeds)
            advance(setting.name)
    print_table(
        f"coverage of 95 % intervals over {options.seeds} seeds", HEADINGS, [texts(row) for row in rows], texts=2
    )
    if options.out is not None:
        table: str = pd.DataFrame([msgspec.structs.asdict(row) for row in rows]).to_csv(index=False)
        write_file(options.out, table)
    return 0 if all(row.kept for row in rows) else 1


HEADINGS = ("setting", "metric", "truth", "source", "printed", "coverage", "bias", "would need", "kept")


def texts(row: Covered) -> tuple[str, ...]:
    """One row of the printed table."""
    return (
        row.setting, row.metric, number(row.truth), row.source, f"{row.printed:.0%}",
        "-" if math.isnan(row.coverage) else f"{row.coverage:.1%}", f"{row.bias:+.1%}",
        "-" if row.times_longer == 1 else f"{row.times_longer:.3g}x", "yes" if row.kept else "NO",
    )  # fmt: skip


if __name__ == "__main__":
    run(main)
