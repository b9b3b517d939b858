"""From the steps that another engine ran to the event table of a run.

Our own station receives the requests at the observed times and plans each step. A plan that differs from the observed
step is an error, so a run that exists shows that the engine's scheduler follows the station's rules, step by step.
The engine's scheduling and output processing count as parts of its steps, since their time grows with the rows, too.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from specfleet.engine.outside.job import Facts, SeenStep, Served
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import Log, RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.build import join_of, verifier_station
from specfleet.fleet.stations.messages import StepDone
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Member, Step

DRAFTING, PROMPT = ("draft", "draft_prefill"), ("prefill", "chunk")


def with_cache(fleet: Fleet, facts: Facts) -> Fleet:
    """Return the fleet with the KV blocks of a started engine."""
    batching = msgspec.structs.replace(fleet.verifiers.batching, block_size=facts.block_size, kv_blocks=facts.kv_blocks)
    return msgspec.structs.replace(fleet, verifiers=msgspec.structs.replace(fleet.verifiers, batching=batching))


Differs = Callable[[Step | None, SeenStep], str]
"""Says how a plan differs from what was seen of a step; empty where it does not."""


def rows_differ(step: Step | None, seen: SeenStep) -> str:
    """Say in which row a plan has other tokens or drafts than a step."""
    ran, planned = {request: row[:2] for request, row in seen.rows.items()}, {} if step is None else _rows(step)
    apart = sorted(request for request in ran.keys() | planned.keys() if ran.get(request) != planned.get(request))
    if step is not None and not apart:
        return ""
    first = apart[0] if apart else -1
    return f"request {first} has (tokens, drafts) {ran.get(first, 'none')}, planned {planned.get(first, 'none')}"


def cache_differs(station: Station, step: Step | None, seen: SeenStep) -> str:
    """Say which prompt has another beginning in the prefix cache, or that it holds other blocks; empty without one."""
    cache = station.rows.cache if isinstance(station, VerifierStation) else None
    if cache is None or step is None or not seen.blocks:
        return ""
    for member in step.members:
        if step.kind_of(member) in PROMPT and member.base != (known := seen.computed[member.request]):
            return f"request {member.request} begins after {known} tokens, planned {member.base}"
    blocks = cache.free, len(cache.places), cache.evicted
    return "" if blocks == seen.blocks else f"(free, held, evicted) blocks are {seen.blocks}, planned {blocks}"


def log_of(fleet: Fleet, served: Served, differs: Differs = rows_differ) -> Log:
    """Return the rows of the event table; InputError where the station plans another step than the engine ran."""
    station = RecordedStation(verifier_station(fleet, 0), "real")
    arrivals = _arrivals(fleet, served)
    arrival = next(arrivals, None)
    for number, seen in enumerate(served.steps, 1):
        while arrival is not None and arrival[0] <= seen.start_s:
            time_s, tag, request = arrival
            station.handle(join_of(fleet, tag, request), time_s)
            arrival = next(arrivals, None)
        step = _started(station, seen.start_s)
        if difference := differs(step, seen) or cache_differs(station.station, step, seen):
            raise InputError(f"step {number} of the engine differs from the station's plan: {difference}")
        assert step is not None
        known_s = seen.end_s if seen.draft_s is None else seen.draft_s
        outcomes = tuple([_outcome(step, member, seen) for member in step.members])
        station.handle(StepDone(step.number, outcomes, known_s - seen.start_s), known_s)
        if seen.draft_s is not None and (drafting := _started(station, known_s, drafting=True)) is not None:
            drafted = tuple([Outcome(drafted=seen.drafts.get(member.request, 0)) for member in drafting.members])
            station.handle(StepDone(drafting.number, drafted, seen.end_s - known_s), seen.end_s)
    return station.log


def _arrivals(fleet: Fleet, served: Served) -> Iterator[tuple[float, int, Request]]:
    """Yield time, stream and request of each arrival, in the engine's order; one during a step arrived when it was due,
    or just after that step began."""
    starts_s, arrivals = [seen.start_s for seen in served.steps], []
    for tag, requests in streams_of(fleet).items():
        for request in requests:
            noticed_s = served.joined_s[request.number]
            earlier = bisect_left(starts_s, noticed_s)
            began_s = math.nextafter(starts_s[earlier - 1], math.inf) if earlier else 0.0
            due_s = max(request.not_before_s, began_s) if request.not_before_s else noticed_s
            arrivals.append((min(due_s, noticed_s), tag, request))
    arrivals.sort(key=lambda arrival: served.joined_s[arrival[2].number])
    # A turn was due before it was noticed, and that time is not known: no later than the next arrival.
    times_s = np.minimum.accumulate([time_s for time_s, _, _ in reversed(arrivals)])[::-1].tolist()
    return iter([(time_s, tag, request) for time_s, (_, tag, request) in zip(times_s, arrivals, strict=True)])


def _started(station: RecordedStation, now_s: float, drafting: bool = False) -> Step | None:
    """Return the step that the station starts, if it is of that side."""
    following = station.station.program
    if drafting != bool(following and following[0][0] in DRAFTING):
        return None
    plan = station.plan(now_s)
    return plan.step if isinstance(plan, Start) else None


def _rows(step: Step) -> dict[int, tuple[int, int]]:
    """Return the tokens of each request in a step, and how many of them are drafts."""
    return {
        member.request: (member.tokens + 1, member.tokens) if step.kind_of(member) == "verify" else (member.tokens, 0)
        for member in step.members
    }


def _outcome(step: Step, member: Member, seen: SeenStep) -> Outcome:
    verifies = step.kind_of(member) == "verify"
    return Outcome(accepted=seen.rows[member.request][2] - 1) if verifies else Outcome()
