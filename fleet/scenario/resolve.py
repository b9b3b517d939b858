"""Resolves a scenario and its profiles once; both worlds build from the result."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.positions import check_context, positions_of
from specfleet.fleet.policies.adaptive import Adaptive
from specfleet.fleet.policies.allocate import BlindShare
from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.goodput import Goodput, RoundCosts
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.route import Affinity
from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.scenario import sides
from specfleet.fleet.scenario.lengths import Lengths
from specfleet.fleet.scenario.resolved import (
    Fleet,
    LocalDrafts,
    Models,
    Patience,
    ResolvedDevice,
    ResolvedDrafters,
    ResolvedLink,
    ResolvedVerifiers,
    Room,
)
from specfleet.fleet.scenario.scenario import Drafters, LengthRule, Scenario, SharedDevice, Verifiers, needs_of
from specfleet.fleet.scenario.workload import read_lengths, with_lengths
from specfleet.fleet.times.effects import NO_CACHE, USED
from specfleet.fleet.times.labels import basis_of
from specfleet.fleet.times.mixed import drafting_s, parts_of, pass_s, together_s
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import Member, Step
from specfleet.fleet.times.step_time import LinkTime, StepTime


def resolve(scenario: Scenario) -> Fleet:
    """Resolve a scenario. Values that only a profile or a device has are left open without one.

    Raises:
        InputError: A tree has too many nodes, a file of the workload cannot be read, its texts exceed the models'
            positions, or a profile does not know the drafts.
    """
    devices, lengths = sides.shared_devices(scenario), read_lengths(scenario.workload)
    drafters, verifiers = scenario.drafters, scenario.verifiers
    room = _room(scenario, lengths)
    sides.check_drafts(scenario, f"scenario {scenario.name!r}")
    profiles = sides.known_profiles(scenario)
    known, shared = positions_of(profiles, drafters.count > 0), sides.together(scenario)
    check_context(known, lengths.longest_text, room.longest_draft if room.overshoot else 0)
    ranges = tuple([sides.firsts(side.tiers, side.count) for side in (drafters, verifiers)])
    moves = drafters.count > 1 and not isinstance(drafters.route, Affinity)
    resolved_drafters = _alike(ResolvedDrafters, drafters) | {
        "targets": verifiers.count,
        "device": drafters.device if drafters.device in devices else "",
        "route": drafters.route if moves else None,
        "positions": min((profile.positions for profile in profiles if profile.positions), default=0),
        "profile": sides.title_of(drafters.profile),
        "models": _models(drafters),
        "times": tuple(_drafter_times(scenario, devices.get(drafters.device))),
        "first": drafters.first or None,
    }
    resolved_verifiers = _alike(ResolvedVerifiers, verifiers) | {
        "device": verifiers.device if verifiers.device in devices else "",
        "speculates": drafters.count > 0,
        "overlap": drafters.overlap,
        "patience": Patience(verifiers.patience_s, verifiers.rejoin_s),
        "drafts": _local_drafts(drafters, resolved_drafters["positions"], shared.get("hidden", 0)),
        **_batching(scenario, lengths, room),
        "prefill": verifiers.prefill or None,
        "kv_token_bytes": _kv_token_bytes(scenario),
        "drafters": 1 if moves else max(drafters.count, 1),
        "profile": sides.title_of(verifiers.profile),
        "models": _models(verifiers),
        "times": tuple(_verifier_times(scenario, devices.get(verifiers.device))),
    }
    resolved_verifiers["allocate"] = _priced(
        scenario, lengths.middle, resolved_verifiers["times"], resolved_drafters["times"]
    )
    return Fleet(
        **_alike(Fleet, scenario)
        | shared
        | {
            "drafters": ResolvedDrafters(**resolved_drafters),
            "verifiers": ResolvedVerifiers(**resolved_verifiers),
            "devices": {name: _device(scenario, device, name) for name, device in devices.items()},
            "links": _links(scenario, *ranges),
            "link_ranges": ranges,
            "streams": _streams(scenario),
            "workload": with_lengths(scenario.workload),
            "lengths": lengths,
            "acceptance": sides.acceptance_of(scenario),
            "needs": needs_of(scenario),
            "room": room,
        }
    )


def _alike(resolved: type[msgspec.Struct], given: msgspec.Struct) -> dict[str, Any]:
    """Return the values that a resolved struct takes over: those of keys with the same name."""
    return {name: getattr(given, name) for name in resolved.__struct_fields__ if name in given.__struct_fields__}


def _local_drafts(drafters: Drafters, positions: int, hidden: int) -> LocalDrafts | None:
    """How each target drafts on its own device; None with drafters elsewhere."""
    if drafters.place != "target" or not drafters.count:
        return None
    reads_states = drafters.kind == "eagle" or (drafters.kind == "block" and hidden > 0)
    return LocalDrafts(drafters.depth, positions, not drafters.finds, int(reads_states))


def _room(scenario: Scenario, lengths: Lengths) -> Room:
    """Return the cache places of streams: for their longest text, and drafts beyond it; InputError for too many."""
    if not scenario.drafters.count:
        return Room(0, 0, lengths.longest_text)
    if isinstance(scenario.drafters.overlap, Ahead):  # a tail ends with its request, see `VerifierStation`
        return Room(lengths.longest_answer, 0, lengths.longest_text)
    rule = scenario.verifiers.allocate
    longest_draft = scenario.drafters.depth if rule is None else rule.longest
    try:
        overshoot = scenario.drafters.shape.room(longest_draft)
    except ValueError as error:
        raise InputError(f"scenario {scenario.name!r}: drafters.shape: {error}") from error
    return Room(longest_draft, overshoot, lengths.longest_text + overshoot)


def _streams(scenario: Scenario) -> int:
    """Number of concurrent streams in a closed loop, at most one a request; 0 if every request is its own stream.

    It is with arrivals, and where all requests wait from the beginning: with a stream each, and more streams than
    stations. Streams of one request that each have a station are a closed loop, stated or not.
    """
    workload, stations = scenario.workload, max(scenario.drafters.count, scenario.verifiers.count)
    streams = min(workload.streams or stations, workload.requests)
    if workload.arrivals is not None or stations < streams == workload.requests:
        return 0
    return streams


def _models(side: Drafters | Verifiers) -> Models:
    ranges = sides.firsts(side.tiers, side.count)
    return tuple((first, sides.in_tier(side.tiers, first, "model", side.model)) for first in ranges)


def _drafter_times(scenario: Scenario, device: SharedDevice | None) -> Iterator[DrafterTimes]:
    """Yield the times of each range of equal drafters; nothing without a profile."""
    drafters = scenario.drafters
    for first, profile in sides.profiles_of(scenario, "drafters").items():
        if profile is None:
            return
        overhead, draft, catch_up_s = sides.overheads_of(profile, device).drafter, profile.draft, profile.catch_up_s
        if drafters.kind == "block" and not profile.one_pass:  # what was accepted is read in the same pass
            draft, catch_up_s = draft.in_one_pass(), 0.0
        found = drafters.first
        yield DrafterTimes(
            first=first, draft=sides.step_in_tier(drafters.tiers, first) or draft, prefill=profile.draft_prefill,
            catch_up_s=catch_up_s, idle=profile.idle, overhead=overhead, profile=_own_title(drafters, first),
            dropped=found.of_head(drafters.depth) if found and found.drafter == "all" else UNSET,
        )  # fmt: skip


def _verifier_times(scenario: Scenario, device: SharedDevice | None) -> Iterator[VerifierTimes]:
    """Yield the times of each range of equal targets, nothing if one is unknown; a replayed target has no overhead."""
    side = scenario.verifiers
    for first, profile in sides.profiles_of(scenario, "verifiers").items():
        title = _own_title(side, first)
        stated = None if title else side.verify
        verify = sides.step_in_tier(side.tiers, first) or stated or (profile.verify if profile else None)
        prefill = stated or (profile.verify_prefill if profile else None)
        decode = stated or (profile.decode if profile else None)
        if verify is None or prefill is None or decode is None:
            return
        overhead = sides.overheads_of(profile, device).target if profile and side.kind != "replayed" else Overhead()
        realign = profile.realign if profile and side.aligned is not None else StepTime()
        yield VerifierTimes(first, verify, prefill, decode, overhead, realign, title)


def _own_title(side: Drafters | Verifiers, first: int) -> str:
    """Name and basis of the profile that a tier gives a station; empty if none does."""
    return sides.title_of(sides.in_tier(side.tiers, first, "profile", ""))


def _priced(
    scenario: Scenario, context: float, targets: Sequence[VerifierTimes], drafters: Sequence[DrafterTimes]
) -> LengthRule | None:
    """The rule of speculation lengths; one that needs the times of rounds or N gets those of the scenario."""
    rule, rows = scenario.verifiers.allocate, scenario.verifiers.max_num_seqs
    if isinstance(rule, BlindShare) and not rule.clients:
        clients = -(-_streams(scenario) // scenario.verifiers.count)
        return msgspec.structs.replace(rule, clients=clients if clients <= rows else 0)
    beside = scenario.drafters.place == "target"  # drafters elsewhere take no time of a target's
    if not isinstance(rule, Goodput | Adaptive) or rule.costs or not targets or (beside and not drafters):
        return rule
    drafter = drafters[0] if beside else None
    costs = round_costs(targets[0], drafter, scenario.drafters.shape, rows, rule.longest, round(context))
    return msgspec.structs.replace(rule, costs=costs)


def _batching(scenario: Scenario, lengths: Lengths, room: Room) -> dict[str, Any]:
    """The rule of the targets' steps, with the smallest KV cache, and the cache of each range if they differ."""
    profiles = sides.profiles_of(scenario, "verifiers").values()
    rules = [_batching_of(scenario, profile, lengths, room) for profile in profiles]
    smallest = min(rules, key=lambda rule: rule.kv_blocks or math.inf)
    return {"batching": smallest, "kv_blocks": tuple(rule.kv_blocks for rule in rules if set(rules) != {smallest})}


def _batching_of(
    scenario: Scenario, profile: HardwareProfile | None, lengths: Lengths, room: Room
) -> ContinuousBatching:
    """The rule of steps of targets with a profile: their limits, and the places that drafts take.

    Heads and small models on the target's device keep `depth` places of each row. A small model's pass has a token more
    a row, and that of a block `depth` masks, as vLLM counts PARD and DFlash, or one less.

    Raises InputError for a request that does not fit into the KV cache, and for keys about a memory that is not known.
    """
    verifiers, drafters = scenario.verifiers, scenario.drafters
    beside = drafters.place == "target" and drafters.count > 0
    depth = drafters.overlap.least if isinstance(drafters.overlap, Ahead) else room.longest_draft
    has_cache = beside and not drafters.finds
    of_head = drafters.first.of_head(depth) if drafters.first else depth
    fewer = (profile.slots_less or 0) if profile else 0
    slots = has_cache * {"eagle": 0, "block": of_head - fewer}.get(drafters.kind, 1)
    kv, tokens = profile.kv if profile else None, verifiers.kv_tokens
    cached = verifiers.prefix_cache or drafters.prefix_cache
    used, block, unknown = verifiers.gpu_memory_utilization, verifiers.kv_block_size, ""
    if used is not None and (kv is None or not kv.memory_bytes):
        unknown = f"gpu_memory_utilization = {used:g}: the profile does not know its device's memory (estimates do)"
    elif block != Verifiers().kv_block_size and kv is None and not (tokens or cached):
        unknown = f"kv_block_size = {block}: the KV cache has no limit, and its blocks no effect"
    if unknown:
        raise InputError(f"scenario {scenario.name!r}: verifiers.{unknown}; give verifiers.kv_tokens, or leave it out")
    if not tokens and kv is not None:
        tokens = kv.tokens(has_cache, USED if used is None else used)
    batching = ContinuousBatching(
        max_num_seqs=verifiers.max_num_seqs,
        max_num_batched_tokens=max(verifiers.max_num_batched_tokens, depth + 1 + slots), kv_blocks=tokens // block,
        block_size=block, lookahead=of_head if has_cache else 0, slots=slots, prefill_first=verifiers.prefill_first,
    )  # fmt: skip
    longest = lengths.longest_text
    if kv is not None and tokens == 0:
        raise InputError(f"scenario {scenario.name!r}: {NO_CACHE}")
    if (tokens or kv is not None) and not (batching.kv_blocks and batching.fits(longest + depth)):
        raise InputError(
            f"scenario {scenario.name!r}: a request of {longest} tokens and its draft do not fit into a KV cache of "
            f"{tokens} tokens, in whole blocks of {block}; give shorter requests, more kv_tokens or "
            "gpu_memory_utilization, another precision, or more devices to a target"
        )
    return batching


def _kv_token_bytes(scenario: Scenario) -> float:
    """Return what a device of a prefill server sends of a token, a drafter's part included if sent; 0 without a
    bandwidth."""
    prefill, profile, drafters = scenario.verifiers.prefill, sides.profile_of(scenario, "verifiers"), scenario.drafters
    if not prefill or not prefill.link.bandwidth_bytes_per_s:
        return 0.0
    if profile is None or profile.kv is None:
        raise InputError(
            f"scenario {scenario.name!r}: verifiers.prefill.link.bandwidth_bytes_per_s: the profile does not know the "
            "bytes of a token's KV cache (estimates do); leave it out"
        )
    sent = prefill.draft_cache == "sent" and drafters.place == "target" and drafters.count
    return profile.kv.token_bytes + (profile.kv.drafter_token_bytes if sent else 0.0)


def _device(scenario: Scenario, device: SharedDevice, name: str) -> ResolvedDevice:
    profile = sides.profile_of(scenario, "drafters" if scenario.drafters.device == name else "verifiers")
    return ResolvedDevice(device.sharing, profile.contention if profile else (1.0,))


def _links(
    scenario: Scenario, of_drafters: Sequence[int], of_targets: Sequence[int]
) -> tuple[tuple[ResolvedLink, ...], ...]:
    """The link of each pair of ranges of drafters and targets, by their firsts; empty if one is unknown.

    A link is a tier's, the scenario's or the profile's; on a target's device there is none. A run delays messages on
    stated links, and on those of replayed stations.
    """
    drafters, verifiers, profile = scenario.drafters, scenario.verifiers, sides.shared_profile(scenario)
    replayed = drafters.kind == verifiers.kind == "replayed"
    absent = profile is not None and replayed and not basis_of(profile).startswith("measured")

    def link(drafter: int, target: int) -> ResolvedLink | None:
        if drafters.place == "target":
            return ResolvedLink(LinkTime())
        of_drafter = sides.in_tier(drafters.tiers, drafter, "link", scenario.link)
        stated = sides.in_tier(verifiers.tiers, target, "link", of_drafter)
        if stated is not None:
            return ResolvedLink(stated, held=stated != LinkTime())
        return None if profile is None else ResolvedLink(profile.link, held=absent and profile.link != LinkTime())

    table = [[link(drafter, target) for target in of_targets] for drafter in of_drafters]
    links = tuple(tuple(link for link in row if link is not None) for row in table)
    return links if all(len(row) == len(of_targets) for row in links) else ()


def round_costs(
    target: VerifierTimes, drafter: DrafterTimes | None, shape: Shape, most_rows: int, most_tokens: int, context: int
) -> RoundCosts:
    """Return the mean times of rounds up to so many rows, in powers of two, each with up to so many drafts.

    - `drafter`: on the target's device; None for one elsewhere.
    - `context`: committed tokens of each row.
    """
    rows = sorted({min(1 << power, most_rows) for power in range(most_rows.bit_length() + 1)})
    draft_s, verify_s = [], []
    for number in rows:
        steps = [
            tuple(Member(tag, 0, 0, context, tokens, tokens + 1) for tag in range(number))
            for tokens in range(most_tokens + 1)
        ]
        drafts = [(Step(1, "draft", members), [tokens] * number) for tokens, members in enumerate(steps)]
        draft_s.append(tuple([drafting_s(drafter, *draft) if drafter else 0.0 for draft in drafts]))
        verify_s.append(tuple(_verify_s(target, shape, members) for members in steps))
    return RoundCosts(tuple(rows), tuple(draft_s), tuple(verify_s))


def _verify_s(target: VerifierTimes, shape: Shape, members: tuple[Member, ...]) -> float:
    """As `verifier_durations`: rows that draft nothing are a verification of one token, whatever a plain step takes."""
    step = Step(1, "verify", members)
    if len(members) > 1 and target.verify.roofline is not None:
        return pass_s(target, step, shape)
    return together_s(target.verify, parts_of(step, shape))
