"""Checks that the engine can run a scenario; errors name the key in one line."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from specfleet.engine.net.limits import bounds_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.adaptive import Adaptive
from specfleet.fleet.policies.goodput import Goodput
from specfleet.fleet.scenario.arrivals import Trace
from specfleet.fleet.scenario.faults import Kill, NodeFault
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.readers import unread, value_of
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.star import route_of


def check_can_run(fleet: Fleet) -> None:
    """Raise InputError for a scenario that the engine cannot run, with the key and the allowed values."""
    for reason in _reasons(fleet):
        raise InputError(f"scenario {fleet.name!r}: {reason}, or simulate the scenario")
    route_of(fleet)


def check_by_hand(fleet: Fleet) -> None:
    """As `check_can_run`, for nodes that a user starts by hand: nothing kills, stops or time-slices them."""
    check_can_run(fleet)
    if fleet.verifiers.prefill:
        raise InputError(
            f"scenario {fleet.name!r}: verifiers.prefill: no node of it is started by hand; use `specfleet run`"
        )
    for name, device in fleet.devices.items():
        if device.sharing == "turns":
            raise InputError(
                f"scenario {fleet.name!r}: devices.{name}.sharing = 'turns': nodes that are started by hand take no "
                "turns; leave out drafters.device, verifiers.device and [devices], or, on one device, set 'contended'"
            )
    for fault in fleet.faults:
        if isinstance(fault, NodeFault):
            raise InputError(
                f"scenario {fleet.name!r}: faults: node = {fault.node!r}: nodes that are started by hand are killed "
                "and stopped by hand, too; leave that entry out, or use `specfleet run`"
            )


def _reasons(fleet: Fleet) -> Iterator[str]:
    for side, station in (("drafters", fleet.drafters), ("verifiers", fleet.verifiers)):
        if station.kind == "replayed" and station.device:
            yield (
                f"{side}.device = {station.device!r} with {side}.kind = 'replayed': a replayed station has its own "
                "device; leave it out"
            )
    if isinstance(rule := fleet.verifiers.allocate, Goodput | Adaptive) and rule.costs is None:
        tag = rule.__struct_config__.tag
        yield f"verifiers.allocate = {tag!r} without times; give profile or verifiers.allocate.costs"
    if fleet.verifiers.prefill and fleet.verifiers.kind == "real":
        yield "verifiers.prefill is simulated only with verifiers.kind = 'real'; allowed: 'replayed'"
    yield from _of_signals(fleet)
    yield from simulated_alone(fleet, ["verifiers.prefill"])
    yield from _of_shared_prompts(fleet)
    yield from _of_recorded_texts(fleet)
    yield from _of_models(fleet)


def simulated_alone(fleet: Fleet, read: Collection[str] = ()) -> Iterator[str]:
    """Yield a line for each key that no engine reads, whichever runs the scenario, but those that this one does."""
    keys = (key for key in unread("engine") if key not in read)
    yield from (f"{key} is simulated only; leave it out" for key in keys if value_of(fleet, key) is not None)


def _of_shared_prompts(fleet: Fleet) -> Iterator[str]:
    """What the blocks of a real target's prefix cache cannot hold, and texts that a killed process takes with it."""
    drafters, verifiers = fleet.drafters, fleet.verifiers
    if verifiers.kind == "replayed":
        return
    names = [verifier_name(target) for target in range(verifiers.count)]
    if fleet.workload.conversations and any(isinstance(fault, Kill) and fault.node in names for fault in fleet.faults):
        yield "workload.conversations: a killed target has lost what was said; allowed: faults that kill no target"
    if not verifiers.prefix_cache:
        return
    if not all(verifiers.batching_of(target).kv_blocks for target in range(verifiers.count)):
        yield "verifiers.prefix_cache keeps all blocks of a cache without end; give verifiers.kv_tokens"
    if drafters.count and drafters.shape.kind != "chain":
        yield f"drafters.shape.kind = {drafters.shape.kind!r}: verifiers.prefix_cache has no room; allowed: 'chain'"
    if drafters.stations and drafters.kind == "eagle":
        yield "drafters.kind = 'eagle': verifiers.prefix_cache keeps no states; allowed: drafters.place = 'target'"


def _of_signals(fleet: Fleet) -> Iterator[str]:
    """Length rules for which no station would produce signals: greedy or truncated drafts from elsewhere carry no whole
    distributions, on a target's device chains of a model alone have signals, recorded texts have no probabilities."""
    rule, real = fleet.verifiers.allocate, fleet.drafters.count and fleet.drafters.kind != "replayed"
    if rule is None or not real:
        return
    named = f"verifiers.allocate = {rule.__struct_config__.tag!r}"
    is_whole = bounds_of(fleet).sampled and not fleet.workload.top_k and fleet.workload.top_p == 1
    if fleet.needs == "signals" and fleet.verifiers.drafts is None and not is_whole:
        yield (
            f"{named}: drafts from elsewhere carry distributions only where they are sampled, and whole ones without "
            "top_k and top_p; allowed: workload.temperature above 0, or drafters.place = 'target'"
        )
    is_chain = not fleet.drafters.finds and fleet.drafters.shape.kind == "chain"
    if fleet.needs == "signals" and fleet.verifiers.drafts is not None and not is_chain:
        yield (
            f"{named}: of drafts on a target's device only a model's chains have signals; allowed: "
            "drafters.shape.kind = 'chain', and drafters.kind = 'model' or 'eagle'"
        )
    if fleet.needs != "lengths" and fleet.verifiers.kind == "replayed":
        yield f"{named}: recorded texts have no probabilities; allowed: verifiers.kind = 'real'"


READ: dict[str, Callable[[Any], bool]] = {  # values of keys that recorded texts go with
    "verifiers.late": lambda late: late == "wait",
    "workload.arrivals": lambda arrivals: not isinstance(arrivals, Trace),
    "workload.prompt_tokens": lambda tokens: isinstance(tokens, int),
    "workload.new_tokens": lambda tokens: isinstance(tokens, int),
}


def _of_recorded_texts(fleet: Fleet) -> Iterator[str]:
    """Keys that do not go with recorded texts: one greedy text a prompt, all of one length, and whole drafts."""
    if fleet.verifiers.kind != "replayed" or fleet.drafters.kind == "replayed":  # without a model acceptance is drawn
        return
    for key in unread("recorded"):
        value = value_of(fleet, key)
        if value is not None and not (key in READ and READ[key](value)):
            yield (
                f"{key}: the recorded texts of verifiers.kind = 'replayed' have one length, and wait for whole drafts "
                "from elsewhere; allowed: its default, verifiers.kind = 'real', or drafters.kind = 'replayed'"
            )


def _of_models(fleet: Fleet) -> Iterator[str]:
    """Keys that need replayed drafters, or drafters with a model of their own."""
    drafters = fleet.drafters
    if not drafters.count or drafters.kind == "replayed":
        return
    if fleet.routed and not fleet.in_turn:
        yield "drafters.overlap = 'ahead': allowed with it: drafters.route = 'affinity', or drafters.kind = 'replayed'"
    needs = "needs a drafter with a model of its own; allowed: drafters.kind = 'model' or 'replayed'"
    if drafters.kind != "model" and not fleet.in_turn:
        yield f"drafters.overlap {needs}"
