"""How much stations slow each other when they use one device at once: the same steps in k processes."""

import time
from multiprocessing.connection import Connection

import numpy as np

from calibrate.steps import Stopwatch, verify_series
from engine.models import load_model
from engine.node import Node
from engine.verify import Target
from specfleet.scenario import Scenario

TOKENS = 6  # fed in each verification
BURST = 2  # verifications between looks at the clock


def measure_contention(scenario: Scenario, prompt: list[int], most: int, seconds: float) -> tuple[float, ...]:
    """Return the slowdown of a verification with k = 1 .. `most` processes verifying at once, relative to k = 1.

    Times are raw, not at the host's reference pace: the control computation would feel the contention too.
    """
    medians_s = []
    for active in range(1, most + 1):
        nodes = [Node(f"station {number}", _body, scenario, prompt, seconds) for number in range(active)]
        try:
            for node in nodes:
                node.receive()
            for node in nodes:
                node.tell("begin")
            medians_s.append(float(np.mean([node.receive() for node in nodes])))
        finally:
            for node in nodes:
                node.end()
    return tuple(max(1.0, median_s / medians_s[0]) for median_s in medians_s)


def _body(pipe: Connection, scenario: Scenario, prompt: list[int], seconds: float) -> float:
    model = load_model(scenario.verifiers.model, "target", scenario.precision)
    series = verify_series(Target(model), prompt, BURST, Stopwatch(model.device))
    series(TOKENS, len(prompt))
    pipe.send(("ready", None))
    pipe.recv()
    times_s: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        times_s += series(TOKENS, len(prompt))
    return float(np.median(times_s))
