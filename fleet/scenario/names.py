"""Names of stations, of the two worlds, and of the ways to simulate: what records and figures know them by."""

from typing import Literal

World = Literal["sim", "engine"]
"""Simulated time, or the models on this host."""

SimPath = Literal["auto", "simpy", "fast"]
"""How to simulate: by the compiled loop where that applies and pays; by SimPy; by the compiled loop or not at all."""

DRAFTER = "drafter"  # every drafter's name begins with it
BATCH = "batch"
ROUTER = "router"


def drafter_name(drafter: int, count: int) -> str:
    """Name of the station of drafter number `drafter` (from 0) of `count`; an only one needs no number."""
    return DRAFTER if count == 1 else f"{DRAFTER}.{drafter + 1}"


def verifier_name(target: int) -> str:
    """Name of the station of target number `target` (from 0)."""
    return f"verifier.{target + 1}"
