"""The simulator's speed: completed rounds a second with full records, beside a bare SimPy loop of the same network."""

from collections.abc import Iterator

import numpy as np
import simpy

from experiments.bench.interleaved import Done, Turn, interleaved
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from sim.run import simulate

OURS = "specfleet, full records"


def bench_simulator(repetitions: int) -> dict[str, list[Turn]]:
    """Rounds a second of simulator and bare loop."""
    contestants = {
        OURS: lambda _: Done(simulated_rounds(400)),
        "bare SimPy loop": lambda _: Done(bare_rounds(10_000)),
    }
    return interleaved(contestants, repetitions, "simulator")


def star(requests: int, targets: int = 8) -> Scenario:
    """Some targets, exponential times, acceptance as usual: the network of the bare loop."""
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


def simulated_rounds(requests: int) -> int:
    """Simulate with full records; return the completed rounds."""
    run = simulate(star(requests))
    return int(np.sum((run.table["event"].to_numpy() == "done") & (run.table["kind"].to_numpy() == "verify")))


def bare_rounds(rounds: int) -> int:
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

    for _ in range(8):
        env.process(target(simpy.Resource(env)))
    env.run()
    return completed
