"""Names of stations and of the two worlds: what records, figures and the replay test know them by."""

from typing import Literal

World = Literal["sim", "engine"]
"""Simulated time, or the models on this host."""

DRAFTER = "drafter"  # every drafter's name begins with it
BATCH = "batch"
ROUTER = "router"


def drafter_name(drafter: int, count: int) -> str:
    """Name of the station of drafter number `drafter` (from 0) of `count`; an only one needs no number."""
    return DRAFTER if count == 1 else f"{DRAFTER}.{drafter + 1}"


def verifier_name(target: int) -> str:
    """Name of the station of target number `target` (from 0)."""
    return f"verifier.{target + 1}"
