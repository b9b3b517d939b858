"""Which path a simulation takes: SimPy's, which knows everything, or the compiled loop, where it applies and pays."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, get_args

from fleet.errors import InputError
from fleet.scenario.names import SimPath
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import mean_tokens
from sim.fast.plain import unknown_in

# Tokens that SimPy decodes in the time in which numba and the compiled loop are loaded, about half a second. The first
# time on a machine the loop is compiled, too, which takes some six seconds more.
WORTH_LOADING_TOKENS: float = 50_000


class Tally:
    """What this process has simulated by SimPy though the compiled loop could have."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self.loaded = False

    def pays(self, tokens: float) -> bool:
        """Whether to load the loop for a simulation of so many tokens, or to use it since it is loaded.

        Whoever simulates little many times loads it when that would have paid: then it has lost no more than that.
        """
        self.tokens += tokens
        self.loaded = self.loaded or self.tokens >= WORTH_LOADING_TOKENS
        return self.loaded


@cache
def tally() -> Tally:
    """Return the tally of this process."""
    return Tally()


def chosen(fleet: Fleet, path: SimPath, played: bool = False) -> Literal["simpy", "fast"]:
    """Return the path to take; `played`: whether a part of a measured run is played back.

    Raises InputError for a path that there is not, and for "fast" where the loop does not know the fleet.
    """
    if path not in get_args(SimPath):
        raise InputError(f"path = {path!r} is not known; allowed: {', '.join(get_args(SimPath))}")
    if path == "simpy":
        return "simpy"
    workload = fleet.workload
    reason = why_not(fleet, played)
    wanted = path == "fast" or (not reason and tally().pays(workload.requests * mean_tokens(workload.new_tokens)))
    if wanted and not reason:
        reason = unloadable()
    if path == "fast" and reason:
        raise InputError(f"scenario {fleet.name!r}: path = 'fast' {reason}; allowed here: auto, simpy")
    return "fast" if wanted and not reason else "simpy"


def why_not(fleet: Fleet, played: bool = False) -> str:
    """Return why the compiled loop does not apply, in words; "" where it does."""
    unknown = "a measured run that is played back" if played else unknown_in(fleet)
    if unknown:
        return f"does not know {unknown}"
    return "" if has_numba() else "needs numba: pip install 'specfleet[fast]'"


def has_numba() -> bool:
    """Whether numba is installed; it is not imported, which takes time."""
    return find_spec("numba") is not None


@cache
def unloadable() -> str:
    """Import numba; return why that fails, "" where it does not: it may not know this Python, or this numpy."""
    try:
        import_module("numba")
    except ImportError as error:
        return f"needs numba, which says: {' '.join(str(error).split())}"
    tally().loaded = True
    return ""
