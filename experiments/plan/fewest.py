"""Requests that come by themselves: the fewest targets that reach the goals, by each number of drafters.

More targets are never slower, so the fewest are found by bisection, with the levers that equations say are best there;
around what it finds, other levers are tried, too.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from experiments.plan.cheapest import estimated_miss
from experiments.plan.choose import Choice, Contest, Tries
from experiments.plan.question import Question
from experiments.plan.race import Entrant
from experiments.plan.screen import Screened

LEVERS = 3  # the best by equations, tried around the fewest targets
MOST_ROUNDS = 4  # of racing, and of adding a target where the race says that it was luck

Line = dict[int, list[Screened]]
"""Fleets of one kind with one number of drafters, by their targets: the best levers first."""


def fewest(question: Question, screened: Sequence[Screened], tries: Tries) -> Choice:
    """Choose the cheapest fleet that reaches the goals; of those that cost the same, the quickest."""
    contest = Contest(question, screened, tries)
    lines = lines_of(screened)
    searches = [_Search(line, question) for line in lines]
    while asked := [search for search in searches if not search.is_over(_least_cost(searches, contest))]:
        contest.simulate([search.probe() for search in asked])
        for search in asked:
            search.look(contest.entrants())
    for _ in range(MOST_ROUNDS):
        around = [one for search in searches for one in search.around(_least_cost(searches, contest))]
        contest.simulate(around)
        contest.race()
        if not [search for search in searches if search.was_luck(contest.entrants(), contest.leader())]:
            break
    return contest.choice()


def lines_of(screened: Iterable[Screened]) -> list[Line]:
    """Sort fleets that can carry the load into lines along which only the number of targets grows."""
    lines: dict[tuple[str, int], Line] = defaultdict(lambda: defaultdict(list))
    for one in sorted(screened, key=lambda one: one.tpot_s):
        if math.isfinite(one.tpot_s):
            lines[one.shape.kind, one.shape.drafters][one.shape.targets].append(one)
    return [dict(sorted(line.items())) for line in lines.values()]


def _least_cost(searches: Iterable["_Search"], contest: Contest) -> float:
    """The cost of the cheapest fleet that was found to reach the goals, and may be chosen."""
    found = [search.found for search in searches if search.found is not None and contest.may_win(search.found)]
    return min((one.cost_per_hour for one in found), default=math.inf)


class _Search:
    """Bisection along a line: `below` misses the goals, `found` meets them."""

    def __init__(self, line: Line, question: Question) -> None:
        self.line, self.goals = line, question.goals
        self.counts = list(line)
        self.below, self.above = -1, len(self.counts)  # places in `counts`
        able = [place for place, N in enumerate(self.counts) if estimated_miss(line[N][0], self.goals) <= 0]
        self.place = able[0] if able else len(self.counts) - 1

    @property
    def found(self) -> Screened | None:
        """The fewest targets that are known to reach the goals."""
        return self.line[self.counts[self.above]][0] if self.above < len(self.counts) else None

    def is_over(self, least_cost: float) -> bool:
        """Whether the fewest are known, or cost more than others that were found."""
        if self.above - self.below <= 1:
            return True
        return self.line[self.counts[self.below + 1]][0].cost_per_hour > least_cost and self.found is not None

    def probe(self) -> Screened:
        """The fleet to look at next."""
        return self.line[self.counts[self.place]][0]

    def look(self, entrants: dict[str, Entrant]) -> None:
        """Take what the trials say of the probe."""
        if entrants[self.probe().shape.title].worst_miss(self.goals) <= 0:
            self.above = self.place
        else:
            self.below = self.place
        self.place = (self.below + self.above) // 2

    def around(self, least_cost: float) -> list[Screened]:
        """The fleets next to what was found that are not too expensive, with the best few levers."""
        near = [self.counts[place] for place in (self.above - 1, self.above) if 0 <= place < len(self.counts)]
        return [one for N in near for one in self.line[N][:LEVERS] if one.cost_per_hour <= least_cost]

    def was_luck(self, entrants: dict[str, Entrant], leader: Entrant | None) -> bool:
        """Whether more seeds say that what was found misses the goals; then one target more is found."""
        if self.found is None or (leader is not None and leader.cost_per_hour < self.found.cost_per_hour):
            return False
        tried = [entrants[one.shape.title] for one in self.line[self.counts[self.above]] if one.shape.title in entrants]
        if any(one.worst_miss(self.goals) <= 0 for one in tried) or self.above + 1 >= len(self.counts):
            return False
        self.above += 1
        return True
