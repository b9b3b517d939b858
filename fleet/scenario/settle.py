"""From a scenario to a settled fleet: everything that follows from the scenario and its profile, resolved once."""

from collections.abc import Iterator, Sequence

from fleet.errors import InputError
from fleet.policies.admit import CacheRoom, SettledAdmission, WithinMemory
from fleet.policies.allocate import Fixed
from fleet.policies.liveness import Patience
from fleet.policies.overlap import Ahead
from fleet.policies.route import Affinity
from fleet.scenario.scenario import Scenario, Tier, needs_of
from fleet.scenario.settled import (
    Fleet,
    Room,
    SettledBatch,
    SettledDevice,
    SettledDrafters,
    SettledLink,
    SettledVerifiers,
)
from fleet.scenario.sharing import assumed, in_one_process, shared_device, turns_of
from fleet.scenario.sides import described, profile_of, shared_profile, told_of
from fleet.scenario.workload import as_told, longest_of
from fleet.times.effects import CoreWaits
from fleet.times.labels import basis_of
from fleet.times.profile import HardwareProfile
from fleet.times.station_times import BatchTimes, Delays, DrafterTimes, VerifierTimes
from fleet.times.step_time import Constant, LinkTime, Spread


def settle(scenario: Scenario) -> Fleet:
    """Resolve a scenario. What only a profile or a device could give is left open where there is none.

    Raises InputError for a tree with more nodes than anybody can mean, or if a file of the workload cannot be read.
    """
    profile, told, room = shared_profile(scenario), told_of(scenario), room_of(scenario)
    of_drafters, of_targets = told.powers
    return Fleet(
        name=scenario.name,
        seed=scenario.seed,
        precision=scenario.precision,
        drafters=_drafters(scenario, room, told.positions),
        verifiers=_verifiers(scenario),
        batch=_batch(scenario),
        devices=dict(_devices(scenario)),
        links=_links(scenario),
        link_ranges=_link_ranges(scenario),
        streams=_streams(scenario),
        workload=as_told(scenario.workload),
        measure=scenario.measure,
        acceptance=scenario.acceptance or (profile.acceptance if profile else None),
        needs=needs_of(scenario),
        room=room,
        memory=scenario.memory,
        vocabulary=told.vocabulary,
        hidden=told.hidden,
        power=of_drafters,
        target_power=of_targets if of_targets != of_drafters else None,
        control_s=told.control_s,
        core_waits=profile.core_waits if profile else CoreWaits(),
        profile=told.name,
        profile_digest=told.digest,
        basis=told.basis,
        faults=scenario.faults,
        slo=scenario.slo,
        cost=scenario.cost,
    )


def room_of(scenario: Scenario) -> Room:
    """Return the places that streams need in a cache: for their longest text, and for what goes beyond it.

    Raises InputError for a tree with more nodes than anybody can mean, or if a file of the workload cannot be read.
    """
    longest_text, longest_answer = longest_of(scenario.workload)
    if isinstance(scenario.drafters.overlap, Ahead):  # a tail ends with its request, see `VerifierStation`
        return Room(longest_answer, 0, longest_text)
    rule = scenario.batch.allocate if scenario.batch is not None else scenario.verifiers.allocate
    decides = rule or scenario.drafters.allocate
    longest_draft = scenario.drafters.depth if decides is None else decides.longest
    try:
        overshoot = scenario.drafters.shape.room(longest_draft)
    except ValueError as error:  # a tree that nobody can mean
        raise InputError(f"scenario {scenario.name!r}: drafters.shape: {error}") from error
    return Room(longest_draft, overshoot, longest_text + overshoot)


def _streams(scenario: Scenario) -> int:
    """How many streams decode at a time in a closed loop; 0 if every request is a stream of its own."""
    if scenario.workload.arrivals is not None:
        return 0
    if scenario.workload.streams or scenario.batch is not None:
        return scenario.workload.streams
    return max(scenario.drafters.count, scenario.verifiers.count)


def _drafters(scenario: Scenario, room: Room, positions: int) -> SettledDrafters:
    given = scenario.drafters
    return SettledDrafters(
        count=given.count,
        targets=scenario.verifiers.count,
        depth=given.depth,
        shape=given.shape,
        kind=given.kind,
        model=given.model,
        device=_device_of(scenario, given.device),
        allocate=given.allocate or Fixed(given.depth),
        order=given.order,
        admit=_admission(scenario, room),
        warm_up=given.warm_up,
        group=given.group,
        overlap=given.overlap,
        route=given.route if _moves(scenario) else None,
        move=given.move,
        view_delay_s=given.view_delay_s,
        limits_per_s=given.limits_per_s,
        cache_tokens=_cache_tokens(scenario, room),
        positions=positions,
        lease_s=given.lease_s,
        profile=described(scenario, "drafters"),
        times=tuple(_drafter_times(scenario)),
    )


def _moves(scenario: Scenario) -> bool:
    """Whether sessions may move between drafters."""
    return scenario.drafters.count > 1 and not isinstance(scenario.drafters.route, Affinity)


def _admission(scenario: Scenario, room: Room) -> SettledAdmission:
    """The drafter's rule of admission, with the bytes of `[memory]`, where it counts any.

    Without them the engine settles it, from its model and its device; nobody else can.
    """
    admit, memory = scenario.drafters.admit, scenario.memory
    if not isinstance(admit, WithinMemory) or memory is None:
        return admit
    cache_bytes = max(memory.device_bytes - memory.drafter.weights_bytes, 0)
    return CacheRoom(cache_bytes, memory.drafter.kv_bytes_per_token * room.longest_row)


def _cache_tokens(scenario: Scenario, room: Room) -> int:
    """Tokens of context that a drafter's cache holds, by `[memory]`; 0 where it holds all sessions, and without one."""
    memory = scenario.memory
    if memory is None:
        return 0
    tokens = (memory.device_bytes - memory.drafter.weights_bytes) // memory.drafter.kv_bytes_per_token
    sessions = _streams(scenario) or scenario.workload.requests
    return 0 if sessions * room.longest_row <= tokens else max(tokens, 1)


def _drafter_times(scenario: Scenario) -> Iterator[DrafterTimes]:
    """Yield the times of each range of drafters that are alike; nothing without a profile."""
    profile = profile_of(scenario, "drafters")
    if profile is None:
        return
    turns = turns_of(scenario, profile, scenario.drafters.device)
    slowdowns = turns.slowdowns if turns else {}
    delays = Delays(
        profile.turnaround_s, profile.turnaround_row_s, _wake_up_s(scenario, profile, scenario.drafters.device),
        _dispatch_s(scenario, profile, scenario.drafters.device), profile.delay_spread,
        *_core_wait(scenario, profile, scenario.drafters.device),
    )  # fmt: skip
    for first in _firsts(scenario.drafters.tiers, scenario.drafters.count):
        chosen = profile.draft
        for tier in scenario.drafters.tiers:
            if first + 1 >= tier.first and tier.step is not None:
                chosen = tier.step
        yield DrafterTimes(
            first=first,
            draft=chosen.slowed(slowdowns.get("draft", 1.0)),
            prefill=profile.draft_prefill.slowed(slowdowns.get("draft_prefill", 1.0)),
            transfer=profile.transfer,
            catch_up_s=profile.catch_up_s,
            idle=profile.idle if "draft" not in slowdowns else profile.idle.of_overheads,
            recent_load=None if turns else profile.recent_load,
            delays=delays,
        )


def _verifiers(scenario: Scenario) -> SettledVerifiers:
    given = scenario.verifiers
    return SettledVerifiers(
        count=given.count,
        kind=given.kind,
        model=given.model,
        device=_device_of(scenario, given.device),
        rule=given.rule,
        speculates=scenario.drafters.count > 0,
        priorities=given.priorities,
        group=given.group,
        overlap=scenario.drafters.overlap,
        allocate=given.allocate,
        patience=Patience(given.patience_s, given.rejoin_s),
        drafters=1 if _moves(scenario) else max(scenario.drafters.count, 1),
        profile=described(scenario, "verifiers"),
        times=tuple(_verifier_times(scenario)),
    )


def _verifier_times(scenario: Scenario) -> Iterator[VerifierTimes]:
    """Yield the times of each range of targets that are alike; nothing where one of them is not known."""
    given, profile = scenario.verifiers, profile_of(scenario, "verifiers")
    turns = turns_of(scenario, profile, given.device)
    slowdowns = turns.slowdowns if turns else {}
    delays = _verifier_delays(scenario, profile)
    for first in _firsts(given.tiers, given.count):
        verify = given.verify or (profile.verify if profile else None)
        for tier in given.tiers:
            if first + 1 >= tier.first and tier.step is not None:
                verify = tier.step
        prefill = given.verify or (profile.verify_prefill if profile else None)
        decode = given.verify or (profile.decode if profile else None)
        if verify is None or prefill is None or decode is None:
            return
        yield VerifierTimes(
            first=first,
            verify=verify.slowed(slowdowns.get("verify", 1.0)),
            prefill=prefill.slowed(slowdowns.get("verify_prefill", 1.0)),
            decode=decode.slowed(slowdowns.get("decode", 1.0)),
            delays=delays,
        )


def _batch(scenario: Scenario) -> SettledBatch | None:
    given, profile = scenario.batch, shared_profile(scenario)
    if given is None:
        return None
    times = None
    if profile is not None:
        times = BatchTimes(
            draft=profile.draft,
            draft_prefill=profile.draft_prefill,
            prefill=profile.verify_prefill,
            verify=profile.verify,
            realign=profile.realign,
            delays=Delays(
                profile.turnaround_s, profile.turnaround_row_s, 0.0, profile.dispatch_s, profile.delay_spread
            ),
        )
    return SettledBatch(given.rule, given.allocate or Fixed(scenario.drafters.depth), given.padded, times)


def _devices(scenario: Scenario) -> Iterator[tuple[str, SettledDevice]]:
    """Yield name and costs of each device that several stations share."""
    for name in scenario.devices:
        profile = profile_of(scenario, "drafters" if scenario.drafters.device == name else "verifiers")
        contention = profile.contention if profile else (1.0,)
        shared, turns = shared_device(scenario, name), turns_of(scenario, profile, name)
        if shared is not None:
            handover_s = turns.handover_s if turns else 0.0
            yield name, SettledDevice(shared.sharing, handover_s, contention, assumed(scenario, profile, name))


def _device_of(scenario: Scenario, device: str) -> str:
    """The name of a shared device; empty for a device of a station's own, whatever the scenario calls it."""
    return device if shared_device(scenario, device) else ""


def _verifier_delays(scenario: Scenario, profile: HardwareProfile | None) -> Delays:
    """What passes at a target between steps; at a replayed one, whose times are stated whole, nothing."""
    given = scenario.verifiers
    if given.kind == "replayed" or profile is None:
        return Delays()
    core_wait_s, core_wait_spread = _core_wait(scenario, profile, given.device)
    plain = scenario.drafters.count == 0  # only then does a target begin a step that no message asked for
    return Delays(
        turnaround_s=profile.decode_turnaround_s if plain else 0.0,
        wake_up_s=_wake_up_s(scenario, profile, given.device),
        dispatch_s=_dispatch_s(scenario, profile, given.device),
        spread=profile.delay_spread,
        core_wait_s=core_wait_s,
        core_wait_spread=core_wait_spread,
    )


def _wake_up_s(scenario: Scenario, profile: HardwareProfile, device: str) -> float:
    """How long an idle station on that device takes to begin what a message asks for.

    In one process a message is a function call.
    """
    if in_one_process(scenario, device):
        return 0.0
    turns = turns_of(scenario, profile, device)
    return profile.wake_up_s if turns is None or turns.wake_up_s is None else turns.wake_up_s


def _dispatch_s(scenario: Scenario, profile: HardwareProfile, device: str) -> float:
    """What a station on that device spends around each step beyond the step's own time."""
    turns = turns_of(scenario, profile, device)
    return profile.dispatch_s if turns is None or turns.dispatch_s is None else turns.dispatch_s


def _core_wait(scenario: Scenario, profile: HardwareProfile, device: str) -> tuple[float, Spread]:
    """What a station's thread waits for a core before a step; in one process nobody is woken."""
    waits = profile.core_waits
    return (0.0, Constant()) if in_one_process(scenario, device) else (waits.start_s, waits.start_spread)


def _links(scenario: Scenario) -> tuple[tuple[SettledLink, ...], ...]:
    """The link of each pair of ranges of drafters and targets; empty where none is known."""
    drafters, targets = _link_ranges(scenario)
    table = [[_link(scenario, target, drafter) for target in targets] for drafter in drafters]
    known = [[link for link in row if link is not None] for row in table]
    return () if known != table else tuple(map(tuple, known))


def _link(scenario: Scenario, target: int, drafter: int) -> SettledLink | None:
    """The link between a target and a drafter: a tier's, the scenario's or the profile's; within one process none.

    What a profile states that nobody measured is a link of hardware that is not there; so are replayed stations.
    """
    profile = shared_profile(scenario)
    if in_one_process(scenario, scenario.verifiers.device):
        return SettledLink(LinkTime(), of_host=False)
    chosen = scenario.link
    for ranges, number in ((scenario.drafters.tiers, drafter), (scenario.verifiers.tiers, target)):
        for tier in ranges:
            if number + 1 >= tier.first and tier.link is not None:
                chosen = tier.link
    if chosen is not None:
        return SettledLink(chosen, of_host=False, held=chosen != LinkTime())
    if profile is None:
        return None
    replayed = scenario.drafters.kind == scenario.verifiers.kind == "replayed"
    held = replayed and basis_of(profile) != "measured" and profile.link != LinkTime()
    together = scenario.drafters.device == scenario.verifiers.device
    turns = turns_of(scenario, profile, scenario.drafters.device) if together else None
    time = profile.link if turns is None or turns.link is None else turns.link
    return SettledLink(time, of_host=not held, busy=None if held else profile.busy_link, held=held)


def _link_ranges(scenario: Scenario) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of drafters, and of targets, at which links begin to differ."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    return tuple(_firsts(drafters.tiers, drafters.count)), tuple(_firsts(verifiers.tiers, verifiers.count))


def _firsts(tiers: Sequence[Tier], count: int) -> list[int]:
    """Numbers at which stations begin to differ from those before them."""
    return sorted({0} | {tier.first - 1 for tier in tiers if tier.first <= count})
