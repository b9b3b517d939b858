"""Notes on a scenario beside its results, a line each: what it says and its author may not mean.

Nothing here is an error. The command line prints each as `note: ...` on standard error; results keep them in `.notes`.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.order import Fifo
from specfleet.fleet.policies.warm_up import AfterIdle
from specfleet.fleet.scenario.arrivals import Trace
from specfleet.fleet.scenario.facts import accepts, is_stated, mean_accepted, replaced_acceptance
from specfleet.fleet.scenario.lengths import TEXTS
from specfleet.fleet.scenario.names import World
from specfleet.fleet.scenario.readers import is_set
from specfleet.fleet.scenario.reading import NO_SLOWDOWN
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.sides import SIDES, drafting_profiles, known_profiles, profile_of, shared_profile
from specfleet.fleet.scenario.workload import has_file, recorded_of
from specfleet.fleet.scenario.writing import changed, tag_of
from specfleet.fleet.times import labels
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.analytic import StarPrediction

NEARLY = 0.01  # relative difference of two mean lengths that needs no note


def notes_of(scenario: Scenario, world: World = "sim") -> tuple[str, ...]:
    """Return the notes on a scenario that ran in that world, a line each; none for most.

    >>> from specfleet.fleet.scenario.reading import scenario_of
    >>> notes_of(scenario_of("star", {"workload.lengths": "chat"}))[0][:25]
    "workload.lengths = 'chat'"
    """
    kinds = [_replaced_acceptance, _published_texts, _idle_targets, _absent_tiers, _recorded, _queues, _uncached]
    if world != "engine":
        kinds = [_estimated, _left_out, _mixed_profiles, _untimed_decoding, _free_rows, _blocks, *kinds]
    return tuple(note for kind in kinds for note in kind(scenario))


def notes_on_prediction(scenario: Scenario, star: StarPrediction) -> tuple[str, ...]:
    """Return the notes on what the equations say of a scenario: those on the scenario, and on what they leave out."""
    notes, order, drafting = [*notes_of(scenario)], scenario.drafters.order, profile_of(scenario, "drafters")
    if _decodes_in_no_time(scenario):
        notes.append("a plain decoding step takes no time here (decode is not given), so N_max is 0")
    if not isinstance(order, Fifo):
        named = tag_of(type(order))[1]
        notes.append(f"drafters.order = {named!r} serves targets unequally: N_max and rates are of their mean")
    if drafting is not None:
        notes += notes_on_idle_gaps([drafting.idle.slowdown(star.idle_s) / drafting.idle.slowdown(0.0)])
    return tuple(notes)


def notes_on_held(scenarios: Iterable[Scenario]) -> Iterator[str]:
    """Note a closed loop whose other settings are compared: their throughput is what they could serve."""
    loads = [(of.workload.streams, of.workload.arrivals, of.drafters.place == "target") for of in scenarios]
    if len(loads) > 1 and len(set(loads)) == 1 and loads[0][0] and any(place for *_, place in loads):
        yield (
            f"closed loop: each cell holds {loads[0][0]} requests in flight, so throughput is what it can serve; where "
            "requests arrive at a rate it is that rate, and times differ: --set workload.streams=0 --set "
            "workload.arrivals.process=poisson --set workload.arrivals.per_s=RATE"
        )


def notes_on_idle_gaps(slowdowns: Iterable[float]) -> Iterator[str]:
    """Note how much slower drafts are after the idle gaps of stars, by their slowdowns."""
    slowdown = max(slowdowns, default=1.0)
    if slowdown > 1:
        yield f"drafts after an idle gap take up to {slowdown:.3g} times as long, which no equation knows"


def _target_step(scenario: Scenario, kind: Literal["verify", "decode"]) -> StepTime | None:
    profile = profile_of(scenario, "verifiers")
    return scenario.verifiers.verify or (getattr(profile, kind) if profile is not None else None)


def _decodes_in_no_time(scenario: Scenario) -> bool:
    """Whether the times of targets have none for plain decoding steps."""
    step = _target_step(scenario, "decode")
    return step is not None and step.mean_s(1, 1) == 0


def _untimed_decoding(scenario: Scenario) -> Iterator[str]:
    """Note a baseline without the time of its steps: of profiles of aligned rows, which decode nothing by itself."""
    if not scenario.drafters.count and _decodes_in_no_time(scenario):
        yield "a plain decoding step takes no time here: give `decode` in the profile, or its numbers mean nothing"


def _blocks(scenario: Scenario) -> Iterator[str]:
    """Note times of blocks that a chain's profile stands for."""
    for profile in drafting_profiles(scenario) if scenario.drafters.kind == "block" else ():
        if not profile.one_pass:
            yield (
                f"drafters.kind = 'block': profile {profile.name!r} has a chain: a block takes the time of one of its "
                "passes, and what it read before (assumed)"
            )


def _queues(scenario: Scenario) -> Iterator[str]:
    """Note drafts one by one for targets that run several requests, and a rule by the queue where nothing waits."""
    drafters, verifiers, workload = scenario.drafters, scenario.verifiers, scenario.workload
    is_open, stations = workload.arrivals is not None, max(drafters.count, verifiers.count)
    rows, streams, is_apart = verifiers.max_num_seqs, workload.streams or stations, drafters.place == "own"
    singly = not (drafters.finds or is_set(scenario, "drafters.group") or is_set(scenario, "drafters.overlap"))
    if drafters.count and is_apart and singly and rows > 1 and (is_open or streams > stations):
        yield f"drafters.group = 'one' drafts one by one for targets of {rows} requests; 'batch' drafts for all waiting"
    waits = is_open or streams > verifiers.count * rows or (is_apart and streams > drafters.count)
    if getattr(verifiers.allocate, "sees_queue", False) and not waits:
        yield "verifiers.allocate looks at the queue, and here no request waits for a target or for a drafter"


def _free_rows(scenario: Scenario) -> Iterator[str]:
    """Note steps of several requests by a law of single ones: each further request would be free."""
    verifiers, workload = scenario.verifiers, scenario.workload
    kind: Literal["verify", "decode"] = "verify" if scenario.drafters.count else "decode"
    step = _target_step(scenario, kind)
    crowded = workload.arrivals is not None or (workload.streams or scenario.drafters.count) > verifiers.count
    if step is None or step.roofline is not None or verifiers.aligned is not None or not crowded:
        return  # rows of a rectangle have the time of a whole batch
    if verifiers.max_num_seqs > 1 and step.mean_s(2, 1, 2, 2) == step.mean_s(2, 1) > 0:
        profile = profile_of(scenario, "verifiers")
        if profile is not None and profile.inferred_at is not None:
            yield (
                "a round's time is inferred from one load and holds for its requests in flight; with others it would "
                "change, and here it does not: import again with --target MODEL@DEVICE to vary them"
            )
            return
        yield (
            f"{kind} takes no longer for several requests than for one, so that batching is free here: give it "
            "per_row_token_s, or verifiers.max_num_seqs = 1"
        )


def _estimated(scenario: Scenario) -> Iterator[str]:
    """Note step times that are estimated from a device's figures, or measured on a host that was unsteady."""
    for name, profile in _profiles(scenario).items():
        warning, numbers = labels.warning_of(labels.basis_of(profile)), labels.estimated_numbers(profile)
        if warning and not numbers:
            yield f"profile {name}: {warning}; calibrate again on a quiet host"
        elif warning:
            low, high = labels.ASSUMED_RANGE
            is_assumed = labels.rests_on_assumed(profile, "target") or labels.rests_on_assumed(profile, "drafter")
            far = f": with assumed efficiencies, measured steps took {low:.2g} to {high:.2g} times as long"
            yield (
                f"profile {name}: {warning} ({', '.join(numbers)}); delays between "
                "steps and links are none unless the scenario gives them. docs/results.md says how far "
                f"such estimates are off{far if is_assumed else ''}"
            )
        if profile.sources.get("idle") == NO_SLOWDOWN and len(profile.idle.gaps_s) > 1:
            yield (
                f"profile {name}: a draft of any depth takes the stated time, and no idle gap slows it, unless "
                "profile.draft.per_token_s and profile.idle.slowdowns are stated"
            )
        if experts := profile.sources.get("target.experts"):
            yield f"profile {name}: experts of the target are {experts}"


def _left_out(scenario: Scenario) -> Iterator[str]:
    """Note what a run needs of a profile whose calibration left it out."""
    sharing, verifiers = {device.sharing for device in scenario.devices.values()}, scenario.verifiers
    stations = scenario.drafters.count + verifiers.count
    for name, profile in _profiles(scenario).items():
        crowded = "contended" in sharing and stations > len(profile.contention)
        needed: dict[labels.Missing, tuple[bool, str]] = {
            "contention": (crowded, "steps beyond those that were measured slow each other no further"),
            "time_sliced": ("turns" in sharing, "that of stations with devices of their own stands for it"),
            "rows": (verifiers.max_num_seqs > 1, "they are extrapolated"),
            "warm_up": (isinstance(scenario.drafters.warm_up, AfterIdle), "they save nothing"),
        }
        for missing, reason in labels.left_out_of(profile).items():
            needs, instead = needed[missing]
            if needs:
                yield f"profile {name} lacks {labels.MEANINGS[missing]} ({reason}): {instead}"


def _profiles(scenario: Scenario) -> dict[str, HardwareProfile]:
    """Return the profiles of both sides' stations by their names."""
    return {profile.name: profile for profile in known_profiles(scenario)}


def _mixed_profiles(scenario: Scenario) -> Iterator[str]:
    """Note what the scenario's profile still gives where a side has another one."""
    shared = shared_profile(scenario)
    if shared is None or known_profiles(scenario) == [shared] or not scenario.drafters.count:
        return
    stated = {"the link": scenario.link is not None, "acceptance": is_stated(scenario.acceptance)}
    kept = [name for name, own in stated.items() if not own]
    if kept:
        yield (
            f"{' and '.join(kept)} {'is' if len(kept) == 1 else 'are'} profile {shared.name}'s, measured between other "
            "machines than these; give [link] and [acceptance] where these are known"
        )


def _idle_targets(scenario: Scenario) -> Iterator[str]:
    """Note fewer requests than targets."""
    requests = scenario.workload.requests
    if requests < scenario.verifiers.count:
        yield (
            f"workload.requests = {requests}: targets beyond that number have none, and means over targets count them; "
            "give more requests"
        )


def _absent_tiers(scenario: Scenario) -> Iterator[str]:
    """Note tiers beyond the fleet, which a sweep of its size reaches."""
    for side in SIDES:
        stations = getattr(scenario, side)
        for tier in stations.tiers:
            if tier.first > stations.count:
                yield f"{side}.tiers: first = {tier.first} is beyond the fleet, and has no effect there"


def _recorded(scenario: Scenario) -> Iterator[str]:
    """Note how a file of requests was read, and a trace of which only the first rows are, by no one's wish."""
    workload = scenario.workload
    if not has_file(workload):
        return
    with suppress(InputError):  # the file of a past run may be gone
        recorded = recorded_of(workload, scenario.verifiers.prefix_cache)
        is_trace = isinstance(workload.arrivals, Trace)
        file = workload.arrivals.file if isinstance(workload.arrivals, Trace) else workload.lengths
        rows = len(recorded.texts)
        if recorded.note:
            yield f"{file}: {recorded.note}"
        if is_trace and rows > workload.requests and "requests" not in changed(workload):
            yield f"{workload.requests} of {rows} rows of {file}: workload.requests states more"
        if is_trace and rows < workload.requests and "requests" in changed(workload):
            yield f"workload.requests = {workload.requests}: {file} has {rows}, which are all that run"


def _uncached(scenario: Scenario) -> Iterator[str]:
    """Note texts that share tokens where nothing keeps them: the "no cache" of a comparison, or a key left out."""
    names = ("shared", "conversations", "id_tokens", "arrivals.id_tokens")
    stated = [f"workload.{name}" for name in names if is_set(scenario, f"workload.{name}")]
    if stated and not (scenario.verifiers.prefix_cache or scenario.drafters.prefix_cache):
        yield f"{' and '.join(stated)}: nothing keeps what texts share; verifiers.prefix_cache = true does"


def _published_texts(scenario: Scenario) -> Iterator[str]:
    """Note what of the lengths is published, and what assumed."""
    name = scenario.workload.lengths
    if name in TEXTS:
        yield f"workload.lengths = {name!r}: {TEXTS[name].source}"


def _replaced_acceptance(scenario: Scenario) -> Iterator[str]:
    """Note an acceptance that stands in place of one that the profile measured, with what both come to."""
    replaced, stated, depth = replaced_acceptance(scenario), scenario.acceptance, scenario.drafters.depth
    if replaced is None or stated is None or not isinstance(scenario.profile, HardwareProfile):
        return
    ours, measured = mean_accepted(stated, depth), mean_accepted(replaced, depth)
    if ours is None or measured is None or abs(ours - measured) > NEARLY * measured:
        yield (
            f"[acceptance] is the scenario's, {accepts(stated, depth)}, and replaces what profile "
            f"{scenario.profile.name} measured, {accepts(replaced, depth)}; leave the table out to simulate that"
        )
