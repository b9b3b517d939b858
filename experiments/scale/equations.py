"""Fleets of any size by equations: drafters whose targets stay with them are stars that know nothing of each other."""

from typing import NamedTuple

from experiments.scale.places import DEPTH, IN_TURN, NEW_TOKENS, PROMPT_TOKENS, Place, fleet_of
from fleet.scenario.settle import settle
from fleet.times.step_time import StepTime
from sim.approximate import rounds_per_s
from sim.predict import StarInputs, star_inputs

CONTEXT = PROMPT_TOKENS + NEW_TOKENS / 2
HALF = 0.5  # of the pace of a user who has a drafter for himself: what is taken as the end of a drafter in groups
STEADY = 1e-9
MOST_TARGETS = 1 << 12


class Star(NamedTuple):
    """What the equations know of a place: means of its rounds, and the step time of a draft."""

    inputs: StarInputs
    draft: StepTime

    def rounds_per_s(self, targets: int, mode: str) -> float:
        """Rounds a second of one drafter with so many targets."""
        if mode == IN_TURN:
            return float(rounds_per_s(targets, self.inputs.service_s, self.inputs.return_s))
        return self._grouped(targets)

    def tokens_per_s(self, targets: int, mode: str) -> float:
        """Tokens a second of one drafter with so many targets."""
        return self.rounds_per_s(targets, mode) * (self.inputs.accepted_per_round + 1)

    def carries(self, mode: str) -> float:
        """How many targets a drafter carries.

        In turn, until it is busy all the time: 1 + Z / S. In groups it is never too busy, only slower: until a user has
        HALF the pace that he had alone; infinite beyond MOST_TARGETS.
        """
        if mode == IN_TURN:
            return 1 + self.inputs.return_s / self.inputs.service_s
        alone, low, high = self._grouped(1), 1, 2
        while high <= MOST_TARGETS and self._grouped(high) / high >= HALF * alone:
            low, high = high, 2 * high
        if high > MOST_TARGETS:
            return float("inf")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._grouped(middle) / middle >= HALF * alone else (low, middle)
        return low

    def _grouped(self, targets: int) -> float:
        """Rounds a second where whoever waits shares a step: the next one starts when half a step has passed."""
        rows, busy = 1.0, 0.0
        for _ in range(1000):
            step_s = self._draft_s(rows)
            rate = targets / (self.inputs.return_s + step_s * (1 + busy / 2))
            newer = max(1.0, rate * step_s)
            busy = min(1.0, rate * step_s / newer)
            if abs(newer - rows) <= STEADY * rows:
                break
            rows = (rows + newer) / 2
        return rate

    def _draft_s(self, rows: float) -> float:
        """Time of a draft of a mean number of rows, between those of whole ones."""
        below = int(rows)
        times_s = [self.draft.mean_s(DEPTH, CONTEXT, each, (each - 1) * DEPTH) for each in (below, below + 1)]
        return times_s[0] + (rows - below) * (times_s[1] - times_s[0])


def star_of(place: Place) -> Star:
    """Return what the equations know of a place."""
    fleet = settle(fleet_of(place, 1))
    return Star(star_inputs(fleet), fleet.drafter_times(0).draft)
