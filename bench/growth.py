"""Processor time and peak memory of simulations by their number of requests, each in a fresh process.

`python -m bench.growth NAME REQUESTS` runs one of `WORKS` and prints what it took.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.harness import Row
from specfleet.experiments.console.printing import remark
from specfleet.fleet.records.metrics.measure import assess
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import observe

ROWS, TOKENS = 64, 8  # of a target; of an answer
# Of a load: its share of the rate that a closed loop of so many rows reaches; tokens of the KV cache, 0 for no limit.
LOADS = {"light load": (0.3, 0), "load 0.9": (0.9, 0), "overload": (2.0, 0), "overload, KV limits": (2.0, 1600)}
MM1 = 0.9  # load of the queue that all simulate


class Cost(NamedTuple):
    """Processor time and peak memory of a simulation, and the mean latency that it found."""

    used_s: float
    memory_mb: float
    latency_s: float


def served(requests: int, tokens: int = TOKENS, kv_tokens: int = 0, **load: object) -> Scenario:
    """Return a serving target with a drafter on its device; without a load, a closed loop fills its rows."""
    workload = {"requests": requests, "prompt_tokens": 32, "new_tokens": tokens, "streams": 0 if load else ROWS}
    return scenario_of("serving", verifiers={"max_num_seqs": ROWS, "kv_tokens": kv_tokens}, workload=workload | load)


def metrics_of(scenario: Scenario) -> dict[str, Metric]:
    """Simulate without records and compute all metrics."""
    return assess(observe(scenario, path="fast"))[0]


@cache
def capacity_per_s() -> float:
    """Return how many requests a second a closed loop completes that fills all rows."""
    return metrics_of(served(2000))["throughput"].value / TOKENS


def loaded(load: str, requests: int) -> float:
    """Simulate a load of `LOADS`; return the mean latency."""
    share, kv_tokens = LOADS[load]
    arrivals = {"process": "poisson", "per_s": share * capacity_per_s()}
    return metrics_of(served(requests, kv_tokens=kv_tokens, arrivals=arrivals))["latency_s"].value


def queue(requests: int) -> float:
    """M/M/1 as a scenario: prompts of exponential time, and nothing after their first token."""
    step = {"base_s": 1.0, "spread": "exponential"}
    profile = {"name": "bench", "draft": step, "verify": step, "verify_prefill": step}
    arrivals = {"process": "poisson", "per_s": MM1}
    workload = {"requests": requests, "prompt_tokens": 1, "new_tokens": 1, "arrivals": arrivals}
    one = {"count": 1, "max_num_seqs": 1}
    scenario = {"profile": profile, "drafters": {"count": 0}, "verifiers": one, "workload": workload}
    return metrics_of(make_scenario({"name": "M/M/1", **scenario}))["latency_s"].value


def ciw_queue(requests: int) -> float:
    """M/M/1 in ciw."""
    ciw = import_module("ciw")  # installed by who wants to compare

    came, served = [ciw.dists.Exponential(MM1)], [ciw.dists.Exponential(1.0)]
    network = ciw.create_network(arrival_distributions=came, service_distributions=served, number_of_servers=[1])
    ciw.seed(0)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(requests, method="Finish")
    return float(np.mean([record.exit_date - record.arrival_date for record in simulation.get_all_records()]))


Work = Callable[[int], float]  # simulates so many requests; returns their mean latency in s
QUEUES: dict[str, Work] = {"specfleet, metrics only": queue}
QUEUES |= {"ciw": ciw_queue} if find_spec("ciw") is not None else {}
WORKS: dict[str, Work] = QUEUES | {load: partial(loaded, load) for load in LOADS}


def costs(names: Sequence[str], sizes: Sequence[int]) -> dict[str, list[Cost]]:
    """Return the faster of two runs of each work and size, each in a fresh process."""
    return {name: [min(_alone(name, size) for _ in range(2)) for size in sizes] for name in names}


def _alone(name: str, size: int) -> Cost:
    remark(f"{name}, {size:,} requests")
    command = [sys.executable, "-m", "bench.growth", name, str(size)]
    return Cost(*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))  # noqa: S603


def main() -> None:
    """Print the cost of a work; compiled code is loaded before."""
    name, size = sys.argv[1], int(sys.argv[2])
    WORKS[name](2000)
    gc.collect()
    begun_s = time.process_time()
    latency_s = WORKS[name](size)
    used_s = time.process_time() - begun_s
    (peak_kb,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    sys.stdout.write(json.dumps(Cost(used_s, int(peak_kb) / 1024, latency_s)))


def rows_of(grown: Mapping[str, Sequence[Cost]], sizes: Sequence[int], tokens: int) -> list[Row]:
    """Return a row of each work: times and memory by size, and growth of the time by ten times the size."""
    return [
        {"work": name}
        | {f"us, {size:g}": cost.used_s / size / tokens * 1e6 for size, cost in zip(sizes, own, strict=True)}
        | {"growth": max(after.used_s / before.used_s / 10 for before, after in pairwise(own))}
        | {f"MB, {size:g}": cost.memory_mb for size, cost in zip(sizes, own, strict=True)}
        | {"mean latency, s": own[-1].latency_s}
        for name, own in grown.items()
    ]


if __name__ == "__main__":
    main()
