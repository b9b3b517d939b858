"""A measured run played back: what takes the place of what a simulation would draw (`fleet/records/playback.py`)."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, cycle, repeat

import msgspec

from fleet.policies.outcome import Outcome
from fleet.policies.ragged import BatchRule
from fleet.records.playback import Playback, Sent
from fleet.stations.station import Station
from fleet.times.durations import Duration
from fleet.times.effects import NEVER_IDLE, IdleEffect
from fleet.times.step import Member, Step
from sim.servers import Delays


def played_durations(playback: Playback, station: str, drawn_s: Duration, idle: IdleEffect) -> Duration:
    """Return the function that gives a station's steps the times that they had, by kind; if more, from the first again.

    What idleness before a draft did to it is taken out, and what it does here is put in: the first draft after a gap is
    slower than the next one, whichever request that is. Steps of a kind that the run did not have are drawn.
    """
    slows = idle != NEVER_IDLE
    of_kind = {kind: cycle(steps) for (name, kind), steps in playback.steps.items() if name == station}

    def played_s(step: Step) -> float:
        known, unplayed_s = of_kind.get(step.kind), drawn_s(step)
        if known is None:
            return unplayed_s
        played = next(known)
        time_s = played.duration_s
        if slows and step.kind == "draft":
            time_s *= idle.slowdown(step.idle_gap_s, step.warm_tokens)
            time_s /= idle.slowdown(played.idle_gap_s, played.warm_tokens)
        return time_s

    return played_s


def played_delays(playback: Playback, station: str) -> Delays:
    """Return the overhead of a station's steps as it was, step by step; none after the last one of the run."""
    starts_s, ends_s = (late_s.get(station, []) for late_s in (playback.starts_s, playback.ends_s))
    start_s = chain((max(late_s, 0.0) for late_s in starts_s), repeat(0.0))
    return Delays(start_s, start_s, chain((max(late_s, 0.0) for late_s in ends_s), repeat(0.0)))


def deques_of(times_s: Mapping[Sent, Sequence[float]]) -> Mapping[Sent, deque[float]]:
    """Return times of messages on their way, none below 0, for all wires to take from."""
    return {sent: deque(max(time_s, 0.0) for time_s in of_sent) for sent, of_sent in times_s.items()}


class PlayedOutcomes:
    """What the steps of each request yielded, in their order; where the run had fewer, its last one again.

    It takes the place of `Outcomes`. Where drafts are shorter than they were, no more than all of them is accepted.
    """

    def __init__(self, playback: Playback) -> None:
        self.left = {place: deque(outcomes) for place, outcomes in playback.outcomes.items()}
        self.last: dict[tuple[int, int, str], Outcome] = defaultdict(Outcome)

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
            return msgspec.structs.replace(outcome, accepted=member.tokens, matches=False)
        return outcome

    def _drafted(self, step: Step, member: Member) -> int:
        """Look at what the draft step will yield."""
        left = self.left.get((member.tag, member.request, step.kind))
        return member.tokens if not left or left[0].drafted < 0 else min(left[0].drafted, member.tokens)
