"""Which fleets the compiled loop knows: all of a fleet is looked at, and whatever is not listed here must be default.

So a key that comes later is refused by itself until somebody lists it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from fleet.acceptance.models import BetaGeometric, Geometric, PerPosition, Recorded
from fleet.policies.allocate import Fixed
from fleet.policies.order import Fifo, Priority
from fleet.scenario.resolved import Fleet, ResolvedDrafters, ResolvedLink, ResolvedVerifiers
from fleet.scenario.scenario import Workload
from fleet.times.effects import IdleEffect
from fleet.times.overhead import Delay, Overhead
from fleet.times.station_times import DrafterTimes, VerifierTimes
from fleet.times.step_time import LinkTime


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of any value: the loop follows them, or nothing that is simulated depends on them.
KNOWN: dict[type, frozenset[str]] = {
    Fleet: _names(
        "name seed precision drafters verifiers links link_ranges streams workload measure acceptance room memory "
        "vocabulary hidden power profile profile_digest basis slo cost target_power"
    ),
    ResolvedDrafters: _names("count targets depth kind model allocate order move view_delay_s positions profile times"),
    ResolvedVerifiers: _names("count kind model rule speculates priorities drafters profile times"),
    Workload: _names(
        "requests seed streams prompts prompt_tokens new_tokens arrivals conversations lengths temperature top_k top_p"
    ),
    DrafterTimes: _names("first draft prefill transfer catch_up_s idle overhead"),
    VerifierTimes: _names("first verify prefill decode overhead"),
    Overhead: _names("queued woken after"),
    Delay: _names("mean_s spread"),
    IdleEffect: _names("gaps_s slowdowns recoveries"),
    ResolvedLink: _names("time held"),
    LinkTime: _names("latency_s bandwidth_bytes_per_s spread"),
}
LENGTH_MODELS = (Geometric, BetaGeometric, PerPosition, Recorded)  # they draw a round's length whatever its place
UNTIMED: dict[str, Any] = {"batch": None, "devices": {}, "needs": "lengths"}  # of a fleet, which has no defaults there


def is_plain_star(fleet: Fleet) -> bool:
    """Whether the compiled loop knows all of this fleet."""
    return unknown_in(fleet) == ""


def unknown_in(fleet: Fleet) -> str:
    """Return the first thing in a fleet that the compiled loop does not know, as `key = value`; "" for a plain star."""
    return next(_unknown(fleet), "")


def _unknown(fleet: Fleet) -> Iterator[str]:
    drafters, verifiers, model = fleet.drafters, fleet.verifiers, fleet.acceptance
    yield from _others(fleet, "")
    yield from _others(drafters, "drafters.")
    yield from _others(verifiers, "verifiers.")
    yield from _others(fleet.workload, "workload.")
    if not isinstance(drafters.allocate, Fixed):
        yield f"drafters.allocate = {_shown(drafters.allocate)}"
    if not isinstance(drafters.order, Fifo | Priority):
        yield f"drafters.order = {_shown(drafters.order)}"
    if not isinstance(model, LENGTH_MODELS):
        yield f"acceptance = {_shown(model)}"
    if not (verifiers.times and fleet.links and (drafters.times or not drafters.count)):
        yield "a scenario without a profile"
    yield from _unknown_times(fleet)


def _unknown_times(fleet: Fleet) -> Iterator[str]:
    drafters = fleet.drafters.times
    entries: list[DrafterTimes | VerifierTimes] = [*drafters, *fleet.verifiers.times]
    for entry in entries:
        yield from _others(entry, "profile.")
        yield from _others(entry.overhead, "profile.overhead.")
        for delay in msgspec.structs.astuple(entry.overhead):
            yield from _others(delay, "profile.overhead.")
    for times in drafters:
        yield from _others(times.idle, "profile.idle.")
        if (times.idle, times.catch_up_s) != (drafters[0].idle, drafters[0].catch_up_s):
            yield "drafters that differ in more than step times and links"
    for link in (link for row in fleet.links for link in row):
        yield from _others(link, "link.")
        yield from _others(link.time, "link.")


def _others(struct: msgspec.Struct | None, key: str) -> Iterator[str]:
    """Yield the fields of a struct that are neither known nor at their default; `key` stands before their names."""
    known = KNOWN[type(struct)] if struct is not None else frozenset()
    for field in msgspec.structs.fields(struct) if struct is not None else ():
        if field.name in known:
            continue
        default = UNTIMED.get(field.name, field.default)
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        value = getattr(struct, field.name)
        if value != default:
            yield f"{key}{field.name} = {_shown(value)}"


def _shown(value: object) -> str:
    """Write a value as a scenario does: a rule by its name alone."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        plain = plain.get("policy") or plain.get("model") or plain
    return msgspec.json.encode(plain).decode()
