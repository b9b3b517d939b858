"""How much stations slow each other on one device: the same steps with k processes at once, and k by turns."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from calibrate.steps import Stopwatch, verify_series
from engine.lease import file_lease, no_lease
from engine.models import load_model
from engine.node import Node
from engine.verify import Target
from specfleet.scenario import Scenario

TOKENS = 6  # fed in each verification
BURST = 2  # verifications between looks at the clock, and in one turn
HANDOVER_S = 0.0005  # after a turn, so that another process gets the next one


def measure_contention(scenario: Scenario, prompt: list[int], most: int, seconds: float) -> tuple[float, ...]:
    """Return the slowdown of a verification with k = 1 .. `most` processes verifying at once, relative to k = 1."""
    return _slowdowns(scenario, prompt, most, seconds, 0.0, None)


def measure_turns(
    scenario: Scenario, prompt: list[int], most: int, seconds: float, reference_s: float, folder: Path
) -> tuple[float, ...]:
    """Return the slowdown of a verification where k = 1 .. `most` processes verify by turns, relative to k = 1.

    Times are taken at the host's reference pace, which turns do not change; contention does, so it is measured raw.
    """
    return _slowdowns(scenario, prompt, most, seconds, reference_s, folder / "turns")


def _slowdowns(
    scenario: Scenario, prompt: list[int], most: int, seconds: float, reference_s: float, turns: Path | None
) -> tuple[float, ...]:
    medians_s = []
    for active in range(1, most + 1):
        nodes = [
            Node(f"station {number}", _body, scenario, prompt, seconds, reference_s, turns) for number in range(active)
        ]
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


def _body(
    pipe: Connection, scenario: Scenario, prompt: list[int], seconds: float, reference_s: float, turns: Path | None
) -> float:
    model = load_model(scenario.verifiers.model, "target", scenario.precision)
    series = verify_series(Target(model), prompt, BURST, Stopwatch(model.device, reference_s))
    series(TOKENS, len(prompt))
    pipe.send(("ready", None))
    pipe.recv()
    lease = no_lease if turns is None else file_lease(turns)
    times_s: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        with lease():
            times_s += series(TOKENS, len(prompt))
        if turns is not None:
            time.sleep(HANDOVER_S)
    return float(np.median(times_s))
