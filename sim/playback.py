"""Playback of a measured run: its values replace random draws (`fleet/records/playback.py`)."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, cycle, repeat

import msgspec

from fleet.policies.aligned import AlignedRule
from fleet.policies.outcome import Outcome
from fleet.records.playback import AFTER_S, Playback, Sent
from fleet.stations.station import Station
from fleet.times.durations import Duration
from fleet.times.effects import NEVER_IDLE, IdleEffect
from fleet.times.step import Member, Step
from sim.servers import Delays


def played_durations(playback: Playback, station: str, drawn_s: Duration, idle: IdleEffect) -> Duration:
    """Return a function that gives steps their measured times, by kind; after the last one it starts over.

    The slowdown after the measured idle gap is replaced by that after the simulated gap. Times of kinds that the run
    does not have are drawn.
    """
    slows = idle != NEVER_IDLE
    of_kind = {kind: cycle(steps) for (name, kind), steps in playback.steps.items() if name == station}

    def played_s(step: Step) -> float:
        steps, random_s = of_kind.get(step.kind), drawn_s(step)
        if steps is None:
            return random_s
        played = next(steps)
        time_s = played.duration_s
        if slows and step.kind == "draft":
            time_s *= idle.slowdown(step.idle_gap_s, step.warm_tokens)
            time_s /= idle.slowdown(played.idle_gap_s, played.warm_tokens)
        return time_s

    return played_s


def played_delays(playback: Playback, station: str) -> Delays:
    """Return the measured overhead of a station, step by step, and 0 after the last step.

    A start that was withdrawn waits a little longer than it did, so that it is withdrawn again.
    """
    starts_s, ends_s = list(playback.starts_s.get(station, [])), playback.ends_s.get(station, [])
    for steps, waited_s in reversed(playback.withdrawn_s.get(station, [])):
        starts_s.insert(steps, waited_s + AFTER_S)
    start_s = chain((max(late_s, 0.0) for late_s in starts_s), repeat(0.0))
    return Delays(start_s, start_s, chain((max(late_s, 0.0) for late_s in ends_s), repeat(0.0)))


def deques_of(times_s: Mapping[Sent, Sequence[float]]) -> Mapping[Sent, deque[float]]:
    """Return the delays of each message, at least 0, as queues."""
    return {sent: deque(max(time_s, 0.0) for time_s in of_sent) for sent, of_sent in times_s.items()}


class PlayedOutcomes:
    """Measured outcomes of the steps of each request, in order; the last one repeats. It replaces `Outcomes`.

    No more tokens are accepted than the simulated draft has.
    """

    def __init__(self, playback: Playback) -> None:
        self.left = {place: deque(outcomes) for place, outcomes in playback.outcomes.items()}
        self.last: dict[tuple[int, int, str], Outcome] = defaultdict(Outcome)

    def at(self, _station: Station, _rule: AlignedRule | None = None) -> Callable[[Step], tuple[Outcome, ...]]:
        """Return a function that gives the outcomes of a step."""
        return lambda step: tuple([self._next(step, member) for member in step.members])

    def drafting(self, _station: Station) -> Callable[[Step], list[int]]:
        """Return a function that gives the draft tokens of each row of a step."""
        return lambda step: [self._drafted(step, member) for member in step.members]

    def _next(self, step: Step, member: Member) -> Outcome:
        place = member.tag, member.request, step.kind_of(member)
        left = self.left.get(place)
        outcome = self.last[place] = left.popleft() if left else self.last[place]
        if outcome.accepted > member.tokens and step.kind_of(member) == "verify":
            return msgspec.structs.replace(outcome, accepted=member.tokens, matches=False)
        return outcome

    def _drafted(self, step: Step, member: Member) -> int:
        """Return the draft tokens of a row, without taking its outcome."""
        left = self.left.get((member.tag, member.request, step.kind))
        return member.tokens if not left or left[0].drafted < 0 else min(left[0].drafted, member.tokens)
