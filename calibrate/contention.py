"""How much stations slow each other when they run at once on one device: the same steps with k processes active."""

import time
from multiprocessing.connection import Connection

import numpy as np

from calibrate.steps import verify_series
from engine.models import load_model
from engine.node import Node
from engine.verify import Target
from specfleet.scenario import Scenario

TOKENS = 6  # fed in each verification
BURST = 8  # verifications between looks at the clock


def measure_contention(scenario: Scenario, prompt: list[int], most: int, seconds: float) -> tuple[float, ...]:
    """Return the slowdown of a verification with k = 1 .. `most` processes verifying at once, relative to k = 1."""
    means_s = []
    for active in range(1, most + 1):
        nodes = [Node(f"station {number}", _body, scenario, prompt, seconds) for number in range(active)]
        try:
            for node in nodes:
                node.receive()
            for node in nodes:
                node.tell("begin")
            means_s.append(float(np.mean([node.receive() for node in nodes])))
        finally:
            for node in nodes:
                node.end()
    return tuple(max(1.0, mean_s / means_s[0]) for mean_s in means_s)


def _body(pipe: Connection, scenario: Scenario, prompt: list[int], seconds: float) -> float:
    series = verify_series(Target(load_model(scenario.verifiers.model, "target", scenario.precision)), prompt, BURST)
    series(TOKENS, len(prompt))
    pipe.send(("ready", None))
    pipe.recv()
    times_s: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        times_s += series(TOKENS, len(prompt))
    return float(np.median(times_s))
