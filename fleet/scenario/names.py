"""Names of stations, of the two worlds, and of simulation paths, as records and figures use them."""

from typing import Literal

World = Literal["sim", "engine"]
"""Simulated time, or the models on this host."""

SimPath = Literal["auto", "simpy", "fast"]
"""Simulation path: the compiled loop if it applies and pays; SimPy; the compiled loop or an error."""

Engine = Literal["vllm"]
"""Engines of others that a scenario runs on."""

DRAFTER = "drafter"  # prefix of every drafter's name
ROUTER = "router"
TARGET = "verifier"  # prefix of every target's name
PREFILL = "prefill"  # of every prefill server's


def drafter_name(drafter: int, count: int) -> str:
    """Return the name of drafter number `drafter` (from 0) of `count`; a single one has no number."""
    return DRAFTER if count == 1 else f"{DRAFTER}.{drafter + 1}"


def verifier_name(target: int) -> str:
    """Return the name of target number `target` (from 0)."""
    return f"{TARGET}.{target + 1}"
