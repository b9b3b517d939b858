"""How often the printed 95 % intervals hold the truth, over many seeds of a setting.

Open arrivals at the drafter are M/M/1, where the truth is known exactly; of all else a run that is 40 times as long
stands for it. Runs keep no records, and the compiled loop keeps sums of those named "summed". A row keeps the promise
if 92 to 98 % of its printed intervals hold the truth, or hardly any is printed.
"""

import argparse
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from bench.growth import capacity_per_s, metrics_of, served
from bench.harness import Aim, Options, Report, Row
from specfleet.experiments.console.printing import remark
from specfleet.experiments.jobs import side_by_side
from specfleet.fleet.records.metrics.glossary import PERCENTILES, percentile_name
from specfleet.fleet.records.metrics.window import LEVELS, Metric, with_percentiles
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.scenario import Scenario

SEEDS = 400
REFERENCE = 40
PROMISED = (0.92, 0.98)
FALSE_ALARM = 1e-3  # of each row's verdict, where the true coverage is at the border of what is promised
ROUNDING = 1e-9  # of times that take few values, whose percentiles have intervals without width
RARE = 0.05  # share of runs whose interval may be printed by luck
TARGETS = 16  # of open arrivals, which they take in turn: so many that prefills never wait
EXPONENTIAL = {"base_s": 1.0, "spread": {"spread": "exponential"}}
TIMES = ("wait_s", "round_s", "ttft_s", "tpot_s", "latency_s")
COVERED = (
    "throughput", "rounds_per_s", "load", *TIMES,
    *(percentile_name(name, each) for name in TIMES for each in PERCENTILES),
)  # fmt: skip


class Setting(NamedTuple):
    """A scenario to run with many seeds; `exact` holds the metrics that theory knows."""

    name: str
    scenario: Scenario
    exact: Mapping[str, float]


OPTIONS: Options = {
    "--seeds": {"type": int, "default": SEEDS, "help": "runs of each setting"},
    "--only": {"default": "", "help": "settings whose name holds this text"},
}


def study(options: argparse.Namespace) -> Report:
    """Count the intervals of all settings, or of some."""
    rows: list[Row] = []
    for setting in settings():
        if options.only in setting.name:
            remark(setting.name)
            rows += covered(setting, options.seeds)
    broken = sum(not row["kept"] for row in rows)
    return Report({f"intervals over {options.seeds} seeds": rows}, [Aim("rows that break the promise", broken, 0)])


def settings() -> Iterator[Setting]:
    """Yield closed stars below, at and above N_full = 5, open arrivals at four loads, and serving targets."""
    for N in (2, 5, 10):
        yield Setting(f"closed, N = {N}", closed_star(N), {})
    for load, requests in ((0.5, 3000), (0.8, 10000), (0.9, 24000), (0.95, 3000)):
        yield Setting(f"open, load {load:g}", open_star(load, requests), mm1_truth(load))
    slower = {"first": 4, "step": EXPONENTIAL | {"base_s": 8.0}}
    yield Setting("tiers", change_scenario(closed_star(5, 3000), {"verifiers.tiers": [slower]}), {})
    arrivals = {"process": "poisson", "per_s": 0.9 * capacity_per_s()}
    yield Setting("serving, Poisson at 0.9", served(8000, arrivals=arrivals), {})
    elsewhere = {"drafters.place": "own", "drafters.group": {"policy": "batch", "most": 64}, "link.latency_s": 1e-3}
    yield Setting("serving, drafts elsewhere", change_scenario(served(2000, 64), elsewhere), {})
    for name, requests in (("", 2000), (", summed", 12_000)):
        yield Setting(f"serving, closed loop of 64{name}", served(requests, 64), {})


def closed_star(N: int, requests: int = 1500) -> Scenario:
    """S = 1 s and Z = 4 s, both exponential; requests of a few rounds, each with a prefill before."""
    slow = EXPONENTIAL | {"base_s": 4.0}
    return _star(
        {"draft": EXPONENTIAL, "verify": slow, "verify_prefill": slow}, beta=0.8, depth=5, targets=N,
        workload={"requests": requests, "prompt_tokens": 10, "new_tokens": 10},
    )  # fmt: skip


def open_star(load: float, requests: int) -> Scenario:
    """M/M/1 at the drafter: requests of two tokens, one from the prefill, one from a round that only drafting takes."""
    arrivals = {"process": "poisson", "per_s": load}
    return _star(
        {"draft": EXPONENTIAL, "verify": {"base_s": 0.0}, "verify_prefill": EXPONENTIAL}, beta=0.5, depth=1,
        targets=TARGETS,
        workload={"requests": requests, "prompt_tokens": 1, "new_tokens": 2, "arrivals": arrivals},
    )  # fmt: skip


def _star(times: dict[str, object], beta: float, depth: int, targets: int, workload: dict[str, object]) -> Scenario:
    keys = {
        "acceptance": {"model": "geometric", "beta": beta}, "drafters": {"depth": depth},
        "verifiers": {"count": targets}, "workload": workload, "profile": {"name": "exponential", **times},
    }  # fmt: skip
    return make_scenario({"name": "coverage", **keys})


def mm1_truth(load: float) -> dict[str, float]:
    """Return what M/M/1 says of each metric; times in it are exponential with rate 1 - load for a service of 1 s.

    A target has TARGETS gaps between two requests, so that a prefill waits in one of 100,000: the time to the first
    token is the prefill's, and requests that are each delayed by such a time reach the drafter as Poisson ones again.
    """
    truth = {"throughput": 2 * load, "rounds_per_s": load, "load": load, "wait_s": load / (1 - load)}
    for name, rate, share in (("ttft_s", 1.0, 1.0), ("tpot_s", 1 - load, 1.0), ("wait_s", 1 - load, load)):
        truth |= {
            percentile_name(name, percentile): math.log(share / (1 - level)) / rate
            for percentile, level in zip(PERCENTILES, LEVELS, strict=True)
            if share > 1 - level  # of all; the others do not wait
        }
        truth[name] = share / rate
    return truth


def covered(setting: Setting, seeds: int) -> list[Row]:
    """Run a setting with seeds 0, 1, ... and count, metric by metric, how many intervals hold the truth."""
    every = [(setting.scenario, seed, 1) for seed in range(seeds)]
    runs = list(side_by_side(_measured, every, os.cpu_count() or 1))
    truth = setting.exact
    if not truth:
        longer = _measured(setting.scenario, seeds, REFERENCE)
        truth = {name: metric.value for name, metric in longer.items()}
    source = "exact" if setting.exact else f"a run {REFERENCE} times as long"
    covered = [name for name in COVERED if name in truth]
    return [
        {"setting": setting.name, "metric": name, "source": source, **counted(truth[name], [run[name] for run in runs])}
        for name in covered
    ]


def counted(truth: float, runs: Sequence[Metric]) -> Row:
    """Count the intervals of one metric that hold the truth."""
    printed = [run for run in runs if not math.isnan(run.low)]
    rounding = ROUNDING * abs(truth)
    hits = sum(run.low - rounding <= truth <= run.high + rounding for run in printed)
    least, most = stats.binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], len(printed), PROMISED) if printed else (0, 0)
    return {
        "truth": truth,
        "printed, %": 100 * len(printed) / len(runs),
        "coverage, %": 100 * hits / len(printed) if printed else math.nan,
        "bias, %": 100 * (sum(run.value for run in runs) / len(runs) / truth - 1) if truth else math.nan,
        "times longer": sorted(run.times_longer for run in runs)[len(runs) // 2],
        "kept": bool(len(printed) <= RARE * len(runs) or least <= hits <= most),
    }


def _measured(scenario: Scenario, seed: int, times: int) -> dict[str, Metric]:
    requests = times * scenario.workload.requests
    return with_percentiles(metrics_of(change_scenario(scenario, {"seed": seed, "workload.requests": requests})))
