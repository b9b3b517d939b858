"""The path of a simulation: SimPy, which supports all fleets, or the compiled loop, and which fleets that supports.

The keys that the loop does not read have their default values.
"""

import math
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, get_args

import msgspec

from specfleet.fleet.acceptance.models import BetaGeometric, Geometric, PerPosition, Recorded
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.names import SimPath
from specfleet.fleet.scenario.readers import unread, value_of
from specfleet.fleet.scenario.resolved import Fleet

# Tokens that SimPy decodes in the time of loading the compiled loop, about half a second. It reads 20 of a prompt as
# fast as it decodes one.
WORTH_LOADING_TOKENS: float = 50_000

# Tokens that SimPy decoded in this process although the loop supports the fleet; infinite once the loop is loaded.
spent = {"tokens": 0.0}
LENGTH_MODELS = (Geometric, BetaGeometric, PerPosition, Recorded)  # a draw does not depend on the place


def choose_path(fleet: Fleet, path: SimPath, played: bool = False) -> Literal["simpy", "fast"]:
    """Return the path of a simulation. `played`: whether a measured run is played back.

    Raises InputError for an unknown path, and for "fast" if the loop does not support the fleet.
    """
    if path not in get_args(SimPath):
        raise InputError(f"path = {path!r} is not known; allowed: {', '.join(get_args(SimPath))}")
    if path == "simpy":
        return "simpy"
    workload = fleet.workload
    reason = reason_against(fleet, played)
    if path == "auto" and not reason:
        spent["tokens"] += workload.requests * (fleet.lengths.mean_answer + fleet.lengths.mean_prompt / 20)
    wanted = path == "fast" or (not reason and spent["tokens"] >= WORTH_LOADING_TOKENS)
    if wanted and not reason:
        reason = import_failure()
    if path == "fast" and reason:
        raise InputError(f"scenario {fleet.name!r}: path = 'fast' {reason}; allowed here: auto, simpy")
    return "fast" if wanted and not reason else "simpy"


def reason_against(fleet: Fleet, played: bool = False) -> str:
    """Return why the compiled loop does not apply; "" if it does."""
    unsupported = "a measured run that is played back" if played else unsupported_in(fleet)
    if unsupported:
        return f"does not know {unsupported}"
    is_there = find_spec("numba") is not None  # it is not imported, which takes time
    return "" if is_there else "needs numba: pip install 'specfleet[fast]'"


def path_text(taken: str, fleet: Fleet, played: bool = False) -> str:
    """Say in one line which path a simulation took, and why it did not take the compiled loop."""
    if taken == "fast":
        return "path: fast, the compiled loop"
    reason = reason_against(fleet, played) or f"is loaded from {WORTH_LOADING_TOKENS:,.0f} tokens on, or by --path fast"
    return f"path: simpy, for the compiled loop {reason}"


@cache
def import_failure() -> str:
    """Import numba; return why that fails, "" if it works. It may not support this Python or numpy."""
    try:
        import_module("numba")
    except ImportError as error:
        return f"needs numba, which says: {' '.join(str(error).split())}"
    spent["tokens"] = math.inf
    return ""


def unsupported_in(fleet: Fleet) -> str:
    """Return the first unsupported key of a fleet as `key = value`; "" for a fleet that the loop supports."""
    return next(_unsupported(fleet), "")


def _unsupported(fleet: Fleet) -> Iterator[str]:
    drafters, verifiers = fleet.drafters, fleet.verifiers
    for key in unread("loop"):
        value = value_of(fleet, key)
        if value is not None and not (key == "acceptance" and (isinstance(value, LENGTH_MODELS) or not drafters.count)):
            yield f"{key} = {_format(value)}"
    if drafters.finds and isinstance(fleet.acceptance, Recorded) and fleet.acceptance.drafted:
        yield "recorded lengths of drafts that are found"
    if drafters.stations and verifiers.batching.kv_blocks and verifiers.prefix_cache:
        yield "kv_tokens and prefix_cache with drafters elsewhere"
    if any(times.verify.roofline is not None and times.verify.roofline.measured for times in verifiers.times):
        yield "tables of measured attention"
    if not (verifiers.times and fleet.links and (drafters.times or not drafters.count)):
        yield "a scenario without a profile"
    if len({(times.idle, times.catch_up_s) for times in drafters.times}) > 1:
        yield "drafters that differ in more than step times and links"


def _format(value: object) -> str:
    """Write a value as in a scenario, a rule as its name."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        plain = plain.get("policy") or plain.get("model") or plain
    return msgspec.json.encode(plain).decode()
