"""Playback of a measured run: its values replace random draws (`fleet/records/playback.py`)."""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain, cycle, repeat

import msgspec

from specfleet.fleet.policies.aligned import AlignedRule
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.playback import AFTER_S, Playback
from specfleet.fleet.stations.outcomes import DONE
from specfleet.fleet.stations.station import Station
from specfleet.fleet.times.durations import Duration
from specfleet.fleet.times.effects import NEVER_IDLE, IdleEffect
from specfleet.fleet.times.step import Member, Step, StepKind
from specfleet.sim.servers import Delays


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


class PlayedOutcomes:
    """Measured outcomes of the steps of each request, in order. It replaces `Outcomes`.

    Those of the run's next requests follow, and from its first one on again. A request that the run lacks begins with
    the outcomes of another one. No more tokens are accepted than the simulated draft has.
    """

    def __init__(self, playback: Playback) -> None:
        self.of_kind: dict[StepKind, list[Outcome]] = defaultdict(list)  # request after request
        self.first: dict[tuple[int, StepKind], int] = {}  # place of each request in them
        self.taken: Counter[tuple[int, StepKind]] = Counter()
        for (_, request, kind), outcomes in sorted(playback.outcomes.items(), key=lambda item: item[0][1]):
            self.first[request, kind] = len(self.of_kind[kind])
            self.of_kind[kind] += outcomes
        self.requests = 1 + max((request for request, _ in self.first), default=0)

    def at(self, _station: Station, _rule: AlignedRule | None = None) -> Callable[[Step], tuple[Outcome, ...]]:
        """Return a function that gives the outcomes of a step."""
        return lambda step: tuple([self._take(step, member) for member in step.members])

    def drafting(self, _station: Station) -> Callable[[Step], list[int]]:
        """Return a function that gives the draft tokens of each row of a step."""
        return lambda step: [self._drafted(step, member) for member in step.members]

    def _take(self, step: Step, member: Member) -> Outcome:
        kind = step.kind_of(member)
        outcome = self._next(member.request, kind)
        self.taken[member.request, kind] += 1
        if outcome.accepted > member.tokens and kind == "verify":
            return msgspec.structs.replace(outcome, accepted=member.tokens, matches=False)
        return outcome

    def _drafted(self, step: Step, member: Member) -> int:
        """Return the draft tokens of a row, negative if found, without taking its outcome."""
        outcome = self._next(member.request, step.kind)
        drafted = member.tokens if outcome.drafted < 0 else min(outcome.drafted, member.tokens)
        return -drafted if outcome.found else drafted

    def _next(self, request: int, kind: StepKind) -> Outcome:
        outcomes = self.of_kind.get(kind, DONE)
        place = self.first.get((request % self.requests, kind), 0) + self.taken[request, kind]
        return outcomes[place % len(outcomes)]
