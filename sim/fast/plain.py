"""Fleets that the compiled loop supports. All fields that are not listed here must have their default value.

A new key is therefore refused until it is listed.
"""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from specfleet.fleet.acceptance.models import BetaGeometric, Geometric, PerPosition, Recorded
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.resolved import Fleet, ResolvedDrafters, ResolvedLink, ResolvedVerifiers
from specfleet.fleet.scenario.scenario import Workload
from specfleet.fleet.scenario.workload import longest_of
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.overhead import Delay, Overhead
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step_time import LinkTime


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of any value: the loop supports them, or the simulation does not depend on them.
SUPPORTED: dict[type, frozenset[str]] = {
    Fleet: _names(
        "name seed precision drafters verifiers links link_ranges streams workload measure acceptance room "
        "vocabulary hidden power profile profile_digest basis slo cost target_power"
    ),
    ResolvedDrafters: _names("count targets depth place kind model group positions profile times"),
    ResolvedVerifiers: _names(
        "count kind model rule speculates drafts batching late priorities drafters profile times"
    ),
    Workload: _names("requests seed streams prompts prompt_tokens new_tokens arrivals lengths temperature top_k top_p"),
    DrafterTimes: _names("first draft prefill catch_up_s idle overhead"),
    VerifierTimes: _names("first verify prefill decode overhead"),
    Overhead: _names("queued woken after"),
    Delay: _names("mean_s spread"),
    IdleEffect: _names("gaps_s slowdowns recoveries"),
    ResolvedLink: _names("time held"),
    LinkTime: _names("latency_s bandwidth_bytes_per_s spread"),
}
LENGTH_MODELS = (Geometric, BetaGeometric, PerPosition, Recorded)  # a draw does not depend on the place
UNTIMED: dict[str, Any] = {"devices": {}, "needs": "lengths"}  # defaults of a fleet


def unsupported_in(fleet: Fleet) -> str:
    """Return the first unsupported field of a fleet as `key = value`; "" for a plain star or serving targets."""
    return next(_unsupported(fleet), "")


def has_serving_targets(fleet: Fleet) -> bool:
    """Whether the loop of serving targets takes a supported fleet.

    The loop of plain stars is faster where each target verifies one request at a time, in one chunk, and each drafter
    drafts for one session at a time.
    """
    verifiers, workload = fleet.verifiers, fleet.workload
    streams = fleet.streams or (workload.requests if workload.arrivals is None else math.inf)
    one_row = streams <= verifiers.count and longest_of(workload)[0] <= verifiers.batching.max_num_batched_tokens
    simple = isinstance(fleet.acceptance, LENGTH_MODELS) and isinstance(fleet.drafters.group, One)
    simple &= (
        fleet.drafters.count > 0
        and verifiers.late == "skip"
        and verifiers.drafts is None
        and not verifiers.batching.kv_blocks
    )
    return not (simple and one_row)


def _unsupported(fleet: Fleet) -> Iterator[str]:
    drafters, verifiers, model = fleet.drafters, fleet.verifiers, fleet.acceptance
    yield from _others(fleet, "")
    if drafters.count and not isinstance(model, LENGTH_MODELS):
        yield f"acceptance = {_format(model)}"
    if drafters.stations and verifiers.batching.kv_blocks:
        yield "kv_tokens with drafters elsewhere"
    if not (verifiers.times and fleet.links and (drafters.times or not drafters.count)):
        yield "a scenario without a profile"
    if len({(times.idle, times.catch_up_s) for times in drafters.times}) > 1:
        yield "drafters that differ in more than step times and links"


def _others(value: object, key: str) -> Iterator[str]:
    """Yield fields of the structs in `value` that are neither supported nor default; `key`: prefix of their names."""
    if isinstance(value, tuple):
        for part in value:
            yield from _others(part, key)
    if not isinstance(value, msgspec.Struct) or type(value) not in SUPPORTED:
        return
    supported = SUPPORTED[type(value)]
    for field in msgspec.structs.fields(value):
        default = UNTIMED.get(field.name, field.default)
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.name not in supported and getattr(value, field.name) != default:
            yield f"{key}{field.name} = {_format(getattr(value, field.name))}"
    for name in value.__struct_fields__:
        if name in supported:
            yield from _others(getattr(value, name), f"{key}{name}.")


def _format(value: object) -> str:
    """Write a value as in a scenario, a rule as its name."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        plain = plain.get("policy") or plain.get("model") or plain
    return msgspec.json.encode(plain).decode()
