"""Speed of the simulator beside a bare SimPy loop, and what every user waits for: help, a small run, its metrics.

The bare loop has the same network, and neither records nor computes anything. All times are processor times.
"""

import argparse
import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import simpy

import specfleet
from bench.harness import Aim, Options, Report, Row, compared, run
from specfleet.fleet.records.columns import Series
from specfleet.fleet.records.metrics.intervals import student_t_interval
from specfleet.fleet.records.metrics.measure import assess, measure
from specfleet.fleet.scenario.names import SimPath
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import observe, simulate

BARE, SIMPY = "bare SimPy loop", "specfleet, full records"
FAST, METRICS = "specfleet compiled, full records", "specfleet compiled, metrics only"
# Requests by targets: of the SimPy path, of the compiled loop with records, and without.
REQUESTS = {8: (400, 2000, 8000), 64: (400, 2000, 8000), 1000: (1000, 8000, 32_000)}
BARE_ROUNDS = 20_000
RATE = "rounds/s"
FEW = 60  # requests of a small run
AIMS_S = {"specfleet --help": 0.3, f"specfleet simulate star, {FEW} requests": 1.0, f"metrics of {FEW} requests": 0.015}

OPTIONS: Options = {
    "--repetitions": {"type": int, "default": 8, "help": "runs of each contestant"},
}


def study(options: argparse.Namespace) -> Report:
    """Compare the simulator's paths with the bare loop, then measure what every user waits for."""
    tables = {
        f"one star of {targets} targets": compared(run(contestants(targets), options.repetitions, 1), RATE, BARE)
        for targets in REQUESTS
    }
    return Report(tables, waits(options.repetitions))


def contestants(targets: int) -> dict[str, Callable[[], Row]]:
    """Return the simulator's ways and the bare loop, for a star of so many targets."""
    by_simpy, by_loop, unrecorded = REQUESTS[targets]
    works: dict[str, Callable[[], int]] = {
        BARE: lambda: bare_rounds(targets, BARE_ROUNDS),
        SIMPY: lambda: simulated_rounds(star(by_simpy, targets), "simpy"),
        FAST: lambda: simulated_rounds(star(by_loop, targets), "fast"),
        METRICS: lambda: measured_rounds(star(unrecorded, targets)),
    }
    return {name: partial(rate_of, work) for name, work in works.items()}


def rate_of(rounds: Callable[[], int]) -> Row:
    """Complete rounds; return how many a second of processor time."""
    gc.collect()
    started_s = time.process_time()
    completed = rounds()
    return {RATE: completed / (time.process_time() - started_s)}


def star(requests: int, targets: int) -> Scenario:
    """Return a star with exponential times: the network of the bare loop."""
    profile = {
        "name": "bench",
        "draft": {"base_s": 1.0, "spread": "exponential"},
        "verify": {"base_s": 4.0, "spread": "exponential"},
        "link": {"latency_s": 0.1},
    }
    return make_scenario(
        {
            "name": "bench", "profile": profile, "acceptance": {"model": "geometric", "beta": 0.8},
            "verifiers": {"count": targets},
            "workload": {"requests": requests, "prompt_tokens": 10, "new_tokens": 100},
        }
    )  # fmt: skip


def simulated_rounds(scenario: Scenario, path: SimPath) -> int:
    """Simulate with full records; return the completed rounds."""
    rows = simulate(scenario, path=path).columns()
    return int((rows.event.among("done") & rows.kind.among("verify")).sum())


def measured_rounds(scenario: Scenario) -> int:
    """Simulate without records and compute all metrics; return the completed rounds."""
    findings = observe(scenario, path="fast")
    assess(findings)
    assert findings.verified is not None
    lengths = findings.verified.acceptance_length
    return int(lengths.counts.sum()) if isinstance(lengths, Series) else len(lengths)


def bare_rounds(targets: int, rounds: int) -> int:
    """Complete `rounds` in a bare SimPy loop of the same network: resources and timeouts."""
    env = simpy.Environment()
    rng = np.random.default_rng(0)
    drafter = simpy.Resource(env)
    completed = 0

    def target(verifier: simpy.Resource) -> Iterator[simpy.Event]:
        nonlocal completed
        while completed < rounds:
            yield env.timeout(0.1)
            with drafter.request() as turn:
                yield turn
                yield env.timeout(rng.exponential(1.0))
            yield env.timeout(0.1)
            with verifier.request() as turn:
                yield turn
                yield env.timeout(rng.exponential(4.0))
            completed += 1

    for _ in range(targets):
        env.process(target(simpy.Resource(env)))
    env.run()
    return completed


def waits(repetitions: int) -> list[Aim]:
    """Measure what every user waits for, and hold its mean against what it may be."""
    few = f"workload.requests={FEW}"
    small = specfleet.simulate("star", {"workload.requests": FEW}).run
    works: list[Callable[[], object]] = [
        partial(_specfleet, "--help"), partial(_specfleet, "simulate", "star", "--set", few), partial(measure, small),
    ]  # fmt: skip
    used = {name: partial(_used_s, work) for name, work in zip(AIMS_S, works, strict=True)}
    aims = []
    for name, times_s in run(used, repetitions, cold=1).items():
        aims.append(Aim(f"{name}, processor s", float(np.mean(times_s)), AIMS_S[name], *student_t_interval(times_s)))
    return aims


def _specfleet(*arguments: str) -> None:
    command = [sys.executable, "-m", "specfleet", *arguments]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603  (our own program)


def _used_s(work: Callable[[], object]) -> float:
    """Do some work; return the processor time of this process and of those that it waits for."""

    def used_s() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    begun_s = used_s()
    work()
    return used_s() - begun_s
