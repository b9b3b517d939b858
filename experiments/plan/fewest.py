"""Requests that come by themselves: the fewest targets that reach the goals, by each number of drafters.

More targets are never slower, so the fewest are searched for between one that misses the goals and one that meets them,
where the equations, corrected by what they missed in the last simulation, say that it is. First with the number of
drafters that looks cheapest, for each kind of fleet; then on each of the other devices, up to a multiple of what that
costs, to say how they compare; then with other numbers of drafters, which need to be looked at only as far as they cost
no more than what was found. Around what is found other levers are tried, too.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from experiments.plan.cheapest import estimated_miss
from experiments.plan.choose import Choice, Contest, Tries
from experiments.plan.question import Family, Question
from experiments.plan.race import CLEARLY, Entrant
from experiments.plan.screen import Screened

TOO_DEAR = 2.0  # times the cost of what was found: beyond, fleets on other devices are not looked at
LEVERS = 2  # the best by equations, tried around the fewest targets
MOST_ROUNDS = 4  # of racing, and of adding a target where the race says that it was luck
TRUSTED = 3  # simulations of a search after which it bisects, whatever equations say

Line = dict[int, list[Screened]]
"""Fleets of one family with one number of drafters, by their targets: the best levers first."""


def fewest(question: Question, screened: Sequence[Screened], tries: Tries) -> Choice:
    """Choose the cheapest fleet that reaches the goals; of those that cost the same, the quickest."""
    contest = Contest(question, screened, tries)
    searches = sorted((Search(line, question) for line in lines_of(screened)), key=Search.expected_cost)
    first = {search.family: search for search in reversed(searches)}
    of_kind = {search.family[0]: search for search in reversed(searches)}
    _advance(list(of_kind.values()), contest)
    elsewhere = [search for search in first.values() if search is not of_kind[search.family[0]]]
    for search in elsewhere:
        search.limit(TOO_DEAR * _least_cost(searches, contest), of_kind[search.family[0]].missed)
    _advance(elsewhere, contest)
    others = [search for search in searches if search is not first[search.family]]
    for search in others:
        search.limit(_least_cost(searches, contest), first[search.family].missed)
    _advance(others, contest)
    for _ in range(MOST_ROUNDS):
        found = contest.entrants()
        around = [one for search in searches for one in search.around(_least_cost(searches, contest), found)]
        contest.simulate(around)
        contest.race()
        if not [search for search in searches if search.was_luck(contest.entrants(), contest.leader())]:
            break
    return contest.choice()


def _advance(searches: Sequence["Search"], contest: Contest) -> None:
    """Search on until all have found the fewest targets, or that there are none."""
    while asked := [search for search in searches if not search.is_over()]:
        contest.simulate([search.probe() for search in asked])
        for search in asked:
            search.look(contest.entrants())


def lines_of(screened: Iterable[Screened]) -> list[Line]:
    """Sort fleets that can carry the load into lines along which only the number of targets grows."""
    lines: dict[tuple[Family, int], Line] = defaultdict(lambda: defaultdict(list))
    for one in sorted(screened, key=lambda one: one.tpot_s):
        if math.isfinite(one.tpot_s):
            lines[one.shape.family, one.shape.drafters][one.shape.targets].append(one)
    return [dict(sorted(line.items())) for line in lines.values()]


def _least_cost(searches: Iterable["Search"], contest: Contest) -> float:
    """The cost of the cheapest fleet that was found to reach the goals, and may be chosen."""
    found = [search.found for search in searches if search.found is not None and contest.may_win(search.found)]
    return min((one.cost_per_hour for one in found), default=math.inf)


class Search:
    """The fewest targets of a line: those at `below` miss the goals, those at `above` meet them."""

    def __init__(self, line: Line, question: Question) -> None:
        self.line, self.goals = line, question.goals
        self.counts = list(line)
        self.below, self.above = -1, len(self.counts)  # places in `counts`
        self.is_limited, self.looks = False, 0
        self.missed = 1.0  # what simulations said over what equations said, of the goal that is missed most

    @property
    def family(self) -> Family:
        """The family of its fleets."""
        return self.line[self.counts[0]][0].shape.family

    @property
    def found(self) -> Screened | None:
        """The fewest targets that are known to reach the goals."""
        is_known = self.above < len(self.counts) and not self.is_limited
        return self.line[self.counts[self.above]][0] if is_known else None

    def expected_cost(self) -> float:
        """What the fleet costs that equations say reaches the goals with the fewest targets."""
        return self.line[self.counts[self._place()]][0].cost_per_hour

    def limit(self, cost: float, missed: float) -> None:
        """Look at no fleet that costs more; `missed`: what equations are off by for fleets of the kind."""
        self.missed = missed
        affordable = [place for place, N in enumerate(self.counts) if self.line[N][0].cost_per_hour <= cost]
        self.is_limited = len(affordable) < len(self.counts)
        self.above = len(affordable)

    def is_over(self) -> bool:
        """Whether the fewest are known."""
        return self.above - self.below <= 1

    def _place(self) -> int:
        """Where to look next."""
        open_places = range(self.below + 1, self.above)
        misses = [estimated_miss(self.line[self.counts[place]][0], self.goals) for place in open_places]
        if self.looks >= TRUSTED or not all(map(math.isfinite, misses)):
            return (self.below + self.above) // 2
        hopeful = [place for place, miss in zip(open_places, misses, strict=True) if (1 + miss) * self.missed <= 1]
        if hopeful:
            return hopeful[0]
        twice = [
            place for place in open_places if self.below >= 0 and self.counts[place] >= 2 * self.counts[self.below]
        ]
        return twice[0] if twice else open_places[-1]

    def probe(self) -> Screened:
        """The fleet to look at next."""
        return self.line[self.counts[self._place()]][0]

    def look(self, entrants: dict[str, Entrant]) -> None:
        """Take what the trials say of the probe."""
        place = self._place()
        one = self.line[self.counts[place]][0]
        miss, expected = entrants[one.shape.title].worst_miss(self.goals), estimated_miss(one, self.goals)
        if miss <= 0:
            self.above, self.is_limited = place, False
        else:
            self.below = place
        self.looks += 1
        if math.isfinite(miss) and math.isfinite(expected):
            self.missed = (1 + miss) / (1 + expected)

    def around(self, least_cost: float, entrants: dict[str, Entrant]) -> list[Screened]:
        """The fleets next to what was found, not too expensive and not far from the goals, with the best few levers."""
        near = [self.counts[place] for place in (self.above - 1, self.above) if 0 <= place < len(self.counts)]
        return [one for N in near if self._is_hopeful(self.line[N][0], entrants) for one in self.line[N][:LEVERS]
                if one.cost_per_hour <= least_cost]  # fmt: skip

    def _is_hopeful(self, one: Screened, entrants: dict[str, Entrant]) -> bool:
        """Whether other levers could make as many targets reach the goals."""
        if one.shape.title not in entrants:
            return one is self.found
        return entrants[one.shape.title].worst_miss(self.goals) <= CLEARLY - 1

    def was_luck(self, entrants: dict[str, Entrant], leader: Entrant | None) -> bool:
        """Whether more seeds say that what was found misses the goals; then one target more is found."""
        if self.found is None or (leader is not None and leader.cost_per_hour < self.found.cost_per_hour):
            return False
        tried = [entrants[one.shape.title] for one in self.line[self.counts[self.above]] if one.shape.title in entrants]
        if any(one.worst_miss(self.goals) <= 0 for one in tried) or self.above + 1 >= len(self.counts):
            return False
        self.above += 1
        return True
