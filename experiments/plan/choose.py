"""The choice: screen all fleets, simulate those that could be best, and race the closest of them.

Targets that decode all the time (`cheapest.py`): equations say well what a token costs, so fleets are simulated from
the cheapest on. Requests that come by themselves (`fewest.py`): what a fleet costs is known, whether it reaches the
goals is not, so the fewest targets that do are searched for, by each number of drafters.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from experiments.plan.goals import Goal
from experiments.plan.question import APART, Family, Question, Shape
from experiments.plan.race import Entrant, entrants_of, leader_of, unsettled
from experiments.plan.screen import Screened
from experiments.plan.trial import Trial

SEEDS = (3, 5, 8)  # of the fleets between which the choice is, round by round

Tries = Callable[[Sequence[tuple[Shape, int]]], Iterable[Trial]]
"""Simulate fleets with seeds, in any order."""


class Choice(msgspec.Struct, frozen=True):
    """What the trials say; fleets by their titles.

    `leader`: the best that meets the goals; None if none of those simulated does. `level`: the rivals that could not be
    told apart from it, or cost less than a hundredth more. `perhaps`: those that would be better, and miss a goal on
    average, but not beyond chance.
    """

    entrants: dict[str, Entrant]
    shapes: dict[str, Shape]
    leader: Entrant | None
    level: tuple[Entrant, ...]
    perhaps: tuple[Entrant, ...]


class Contest:
    """All trials so far, and who leads."""

    def __init__(self, question: Question, screened: Sequence[Screened], tries: Tries) -> None:
        self.question, self.tries = question, tries
        self.goals: Sequence[Goal] = question.goals
        self.open_loop = bool(question.arrivals_per_s)
        self.estimates = {one.shape.title: one for one in screened}
        self.trials: list[Trial] = []

    def entrants(self) -> dict[str, Entrant]:
        """All fleets that were simulated, by title."""
        return entrants_of(self.trials, {title: one.cost_per_hour for title, one in self.estimates.items()})

    def contenders(self) -> list[Entrant]:
        """Those of them that may be chosen."""
        return [one for title, one in self.entrants().items() if self.may_win(self.estimates[title])]

    def may_win(self, one: Screened) -> bool:
        """Whether the question lets a fleet be chosen."""
        return one.shape.kind == APART or not self.question.apart

    def leader(self) -> Entrant | None:
        """The best fleet that meets the goals, so far."""
        return leader_of(self.contenders(), self.goals, self.open_loop)

    def simulate(self, fleets: Iterable[Screened], seeds: Iterable[int] = (0,)) -> None:
        """Simulate fleets with those seeds that they have not had."""
        had = {(trial.shape.title, trial.seed) for trial in self.trials}
        pairs = [(one.shape, seed) for one in fleets for seed in seeds if (one.shape.title, seed) not in had]
        if pairs:
            self.trials += self.tries(pairs)

    def race(self) -> None:
        """Give the leader, and those close to it, more seeds, until the choice is clear or the seeds are spent."""
        for seeds in SEEDS:
            best = self.leader()
            if best is None:
                return
            close = unsettled(best, self.contenders(), self.goals, self.open_loop)
            if self.open_loop:
                close = self._of_interest(close, best, seeds)
            is_sure = len(best.trials) >= SEEDS[0] and not best.is_at_the_edge(self.goals)
            if not close and is_sure:
                return
            self.simulate([self.estimates[one.title] for one in (best, *close)], range(seeds))

    def _of_interest(self, close: Iterable[Entrant], best: Entrant, seeds: int) -> list[Entrant]:
        """Which fleets that are close to the leader are raced against it, where what a fleet costs is known.

        Those that cost the same, by the first few seeds: they are told apart by their times alone. Of cheaper ones
        that miss a goal by chance perhaps, the dearest of each family: where it misses, those with less miss, too.
        """
        cheaper: dict[Family, Entrant] = {}
        same = [one for one in close if one.worst_miss(self.goals) <= 0 and seeds <= SEEDS[0]]
        for one in close:
            if one.worst_miss(self.goals) > 0 and one.cost_per_hour < best.cost_per_hour:
                family = self.estimates[one.title].shape.family
                cheaper[family] = max(cheaper.get(family, one), one, key=self._cost_and_miss)
        return [*same, *cheaper.values()]

    def _cost_and_miss(self, one: Entrant) -> tuple[float, float]:
        return one.cost_per_hour, -one.worst_miss(self.goals)

    def choice(self) -> Choice:
        """What the trials say by now."""
        entrants, best = self.entrants(), self.leader()
        shapes = {title: self.estimates[title].shape for title in entrants}
        near: list[Entrant] = []
        if best is not None:
            near = unsettled(best, self.contenders(), self.goals, self.open_loop, nothing_too=True)
        level = tuple(one for one in near if one.worst_miss(self.goals) <= 0)
        perhaps = tuple(one for one in near if one.worst_miss(self.goals) > 0 and len(one.trials) >= SEEDS[0])
        return Choice(entrants, shapes, best, level, perhaps)
