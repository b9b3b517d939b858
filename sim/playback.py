"""A measured run played back: what takes the place of what a simulation would draw (`fleet/records/playback.py`)."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import chain, cycle, repeat

import msgspec

from fleet.policies.outcome import Outcome
from fleet.policies.ragged import BatchRule
from fleet.records.playback import Playback, Sent
from fleet.scenario.workload import Request
from fleet.stations.station import Station
from fleet.times.durations import Duration
from fleet.times.step import Member, Step
from sim.servers import Lateness


def played_durations(playback: Playback, station: str, drawn_s: Duration) -> Duration:
    """Return the function that gives a station's steps the times that they had, by kind; if more, from the first again.

    Steps of a kind that the run did not have are drawn.
    """
    of_kind = {kind: cycle(played_s) for (name, kind), played_s in playback.durations_s.items() if name == station}

    def played_s(step: Step, recent_load: float) -> float:
        known_s = of_kind.get(step.kind)
        return next(known_s) if known_s else drawn_s(step, recent_load)

    return played_s


def lateness_of(playback: Playback, station: str) -> Lateness:
    """Return what a station's steps were late by; nothing where the run had fewer."""
    starts_s, ends_s = (late_s.get(station, []) for late_s in (playback.starts_s, playback.ends_s))
    return Lateness(
        chain((max(late_s, 0.0) for late_s in starts_s), repeat(0.0)),
        chain((max(late_s, 0.0) for late_s in ends_s), repeat(0.0)),
    )


def ways_of(playback: Playback) -> Mapping[Sent, deque[float]]:
    """Return how long messages were on their way, for all wires to take from."""
    return {sent: deque(max(way_s, 0.0) for way_s in ways_s) for sent, ways_s in playback.ways_s.items()}


class PlayedOutcomes:
    """What the steps of each request yielded, in their order; where the run had fewer, its last one again.

    It takes the place of `Outcomes`. Where drafts are shorter than they were, no more than all of them is accepted.
    """

    def __init__(self, playback: Playback) -> None:
        self.left = {place: deque(outcomes) for place, outcomes in playback.outcomes.items()}
        self.last: dict[tuple[int, int, str], Outcome] = defaultdict(Outcome)

    def text_begins(self, tag: int, request: Request) -> None:
        """Nothing to note: outcomes tell where texts end."""

    def at(self, _station: Station, _rule: BatchRule | None = None) -> Callable[[Step], tuple[Outcome, ...]]:
        """Return the function that gives the outcomes of a step; what a batch's rule left of them is in them."""
        return lambda step: tuple([self._next(step, member) for member in step.members])

    def drafting(self, _station: Station) -> Callable[[Step], list[int]]:
        """Return the function that says how many tokens each row of a draft step gets."""

        def drafted(step: Step) -> list[int]:
            return [self._drafted(step, member) for member in step.members]

        return drafted

    def _next(self, step: Step, member: Member) -> Outcome:
        place = member.tag, member.request, step.kind
        left = self.left.get(place)
        outcome = self.last[place] = left.popleft() if left else self.last[place]
        if outcome.accepted > member.tokens and step.kind == "verify":
            return msgspec.structs.replace(outcome, accepted=member.tokens, ended=0, matches=False)
        return outcome

    def _drafted(self, step: Step, member: Member) -> int:
        """Look at what the draft step will yield."""
        left = self.left.get((member.tag, member.request, step.kind))
        return member.tokens if not left or left[0].drafted < 0 else min(left[0].drafted, member.tokens)
