"""The simulator's speed: completed rounds a second, with full records or all metrics of a run, beside a bare loop.

That is a SimPy loop of the same network, which records and computes nothing.
"""

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow.compute as pc
import simpy

from experiments.bench.interleaved import Done, Turn, interleaved
from fleet.records.metrics import assess
from fleet.scenario.names import SimPath
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from sim.run import observe, simulate

SIMPY, FAST, BARE = "specfleet, full records", "specfleet compiled, full records", "bare SimPy loop"
METRICS = "specfleet compiled, metrics only"
# By targets: of the SimPy path, of the compiled loop with records, and without.
REQUESTS = {8: (400, 2000, 8000), 64: (400, 2000, 8000), 1000: (1000, 8000, 32_000)}
BARE_ROUNDS = 20_000


def bench_simulator(repetitions: int, targets: int) -> dict[str, list[Turn]]:
    """Rounds a second of processor time of the simulator's paths and the bare loop, for a star of so many targets."""
    by_simpy, by_loop, unrecorded = REQUESTS[targets]
    contestants: dict[str, Callable[[int], Done]] = {
        METRICS: lambda _: timed(partial(measured_rounds, star(unrecorded, targets))),
        FAST: lambda _: timed(partial(simulated_rounds, star(by_loop, targets), "fast")),
        SIMPY: lambda _: timed(partial(simulated_rounds, star(by_simpy, targets), "simpy")),
        BARE: lambda _: timed(partial(bare_rounds, targets, BARE_ROUNDS)),
    }
    return interleaved(contestants, repetitions, f"simulator, {targets} targets")


def timed(rounds: Callable[[], int]) -> Done:
    """Complete rounds and take the processor time of it: who else computes here does not count, nor others' garbage."""
    gc.collect()
    started_s = time.process_time()
    completed = rounds()
    return Done(completed, time_s=time.process_time() - started_s)


def star(requests: int, targets: int = 8) -> Scenario:
    """Exponential times, acceptance as usual: the network of the bare loop."""
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
    table = simulate(scenario, path=path).table
    return int(pc.sum(pc.and_(pc.equal(table["event"], "done"), pc.equal(table["kind"], "verify"))).as_py())


def measured_rounds(scenario: Scenario) -> int:
    """Simulate without records and compute all metrics; return the completed rounds."""
    findings = observe(scenario, path="fast")
    assess(findings)
    return len(findings.rounds) if findings.rounds is not None else 0


def bare_rounds(targets: int, rounds: int) -> int:
    """Complete `rounds` in a bare SimPy loop of the same network: resources, timeouts, nothing recorded."""
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
