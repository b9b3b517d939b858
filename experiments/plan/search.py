"""The search: simulate the fleets that could be the answer, and race the closest of them.

Targets that decode all the time: equations say well what a token costs, see `_cheapest`. Requests that come by
themselves: the cost of a fleet is known, whether it reaches the goals is not, see `_fewest`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.question import APART, COLOCATED, PLAIN, Family, FleetShape, Kind, Question
from specfleet.experiments.plan.screen import Screened
from specfleet.experiments.plan.trials import CLEARLY, Entrant, Trials, Values, fleet_values, leader_of, unsettled

SEEDS = (3, 5, 8)  # of the fleets between which the choice is, round by round
# Targets that decode all the time.
WAVE = 8  # fleets simulated before the next look
MARGIN = 0.12  # what equations may take for more expensive than it is, as a share
SLACK = 0.10  # and how much slower
MAX_FLEETS = 64  # simulated in all, for each pair of places
OF_A_RIVAL = 8  # fleets of another kind simulated until one meets the goals
# Requests that come by themselves.
TOO_DEAR = 2.0  # times the best cost so far: beyond, fleets on other devices are not looked at
LEVERS = 2  # the best by equations, tried around the fewest targets
MAX_ROUNDS = 4  # of racing, and of adding a target where the race says that it was luck
TRUSTED = 3  # simulations of a line after which it is bisected, whatever equations say


def search(question: Question, screened: Sequence[Screened], jobs: int, done: Callable[[str], None]) -> "Contest":
    """Choose the fleet with the cheapest tokens; for arrivals, the cheapest fleet, then the quickest."""
    contest = Contest(question, jobs, done)
    (_fewest if question.arrivals_per_s else _cheapest)(contest, screened)
    return contest


class Contest:
    """All trials so far, and what they say; `entrants`: the simulated fleets by title."""

    def __init__(self, question: Question, jobs: int, done: Callable[[str], None]) -> None:
        self.question, self.goals, self.jobs = question, question.goals, jobs
        self.open_loop = bool(question.arrivals_per_s)
        self.trials = Trials(done)
        self.entrants: dict[str, Entrant] = {}

    def contenders(self) -> list[Entrant]:
        """Those of them that may be chosen."""
        return [one for one in self.entrants.values() if self.may_win(one.shape)]

    def of_kind(self, kind: Kind) -> list[Entrant]:
        """Those of a kind of fleet."""
        return [one for one in self.entrants.values() if one.shape.kind == kind]

    def may_win(self, shape: FleetShape) -> bool:
        """Whether the question lets a fleet be chosen."""
        return shape.kind == APART or not self.question.apart

    @property
    def leader(self) -> Entrant | None:
        """The best fleet that meets the goals, so far; None if none of those simulated does.

        Targets that have nothing to do with each other give tokens at the same cost, however many: the fewest are best.
        """
        best = leader_of(self.contenders(), self.goals, self.open_loop)
        if best is None or self.question.copies(best.shape) == 1:
            return best
        alike = [one for one in self.contenders() if replace(one.shape, targets=best.shape.targets) == best.shape]
        return min((one for one in alike if one.worst_miss(self.goals) <= 0), key=lambda one: one.shape.targets)

    def simulate(self, shapes: Sequence[FleetShape], seeds: int = 1) -> None:
        """Give fleets that many seeds."""
        self.trials.run(map(self.question.scenario, shapes), seeds, self.jobs)
        for shape in shapes:
            values = self.values(shape, shape.title)
            self.entrants[shape.title] = Entrant(values, shape, self.question.cost_per_hour(shape))

    def values(self, shape: FleetShape, scenario: str) -> tuple[Values, ...]:
        """Return the metrics of a fleet, seed by seed, from the simulations of a scenario by its name."""
        return tuple(fleet_values(self.question, shape, each) for each in self.trials.values[scenario])

    def race(self) -> None:
        """Give the leader, and those close to it, more seeds, until the choice is clear or the seeds are spent."""
        for seeds in SEEDS:
            best = self.leader
            if best is None:
                return
            close = unsettled(best, self.contenders(), self.goals, self.open_loop)
            if self.open_loop:
                close = self._of_interest(close, best, seeds)
            is_sure = len(best.trials) >= SEEDS[0] and not best.is_at_the_edge(self.goals)
            if not close and is_sure:
                return
            self.simulate([one.shape for one in (best, *close)], seeds)

    def _of_interest(self, close: Iterable[Entrant], best: Entrant, seeds: int) -> list[Entrant]:
        """Return the fleets close to the leader that are raced against it, where what a fleet costs is known.

        Those that cost the same, by the first few seeds: their times alone decide between them. Of cheaper ones
        that miss a goal by chance perhaps, the dearest of each family: where it misses, those with less miss, too.
        """
        same = [one for one in close if one.worst_miss(self.goals) <= 0 and seeds <= SEEDS[0]]
        dearest: dict[Family, Entrant] = {}
        for one in sorted(close, key=lambda one: (one.cost_per_hour, -one.worst_miss(self.goals))):
            if one.worst_miss(self.goals) > 0 and one.cost_per_hour < best.cost_per_hour:
                dearest[one.shape.family] = one
        return [*same, *dearest.values()]

    def _near(self) -> list[Entrant]:
        best = self.leader
        return [] if best is None else unsettled(best, self.contenders(), self.goals, self.open_loop, nothing_too=True)

    @property
    def level(self) -> list[Entrant]:
        """Rivals within chance of the leader, or less than a hundredth dearer."""
        return [one for one in self._near() if one.worst_miss(self.goals) <= 0]

    @property
    def perhaps(self) -> list[Entrant]:
        """Rivals that would be better, and miss a goal on average, but not beyond chance."""
        return [one for one in self._near() if one.worst_miss(self.goals) > 0 and len(one.trials) >= SEEDS[0]]


def estimated_miss(one: Screened, goals: Iterable[Goal]) -> float:
    """By how much the equations say that a goal is missed; they know mean times of tokens, and throughput."""
    values = {"throughput": one.tokens_per_s} | {goal.metric: one.tpot_s for goal in goals if "tpot_" in goal.metric}
    return max((goal.miss(values[goal.metric]) for goal in goals if goal.metric in values), default=-math.inf)


def _cheapest(contest: Contest, screened: Sequence[Screened]) -> None:
    """Simulate from the cheapest fleet on, race the closest, and look at a rival of each family."""
    hopeful = _in_order(screened, contest.goals)
    waiting = [one for one in hopeful if contest.may_win(one.shape)]
    most = MAX_FLEETS * len(contest.question.pairs)
    while waiting and len(contest.entrants) < most:
        leader = contest.leader
        if leader is not None and waiting[0].per_million > (1 + MARGIN) * leader.mean("cost_per_million"):
            break  # what is left costs too much, the equations' error allowed for
        contest.simulate([one.shape for one in waiting[:WAVE]])
        waiting = waiting[WAVE:]
    contest.race()
    families = dict.fromkeys(one.shape.family for one in hopeful)
    for family in sorted(families, key=lambda family: (APART, COLOCATED, PLAIN).index(family[0])):
        own = [one for one in hopeful if one.shape.family == family]
        for one in own[:OF_A_RIVAL]:
            simulated = [contest.entrants[each.shape.title] for each in own if each.shape.title in contest.entrants]
            if any(each.worst_miss(contest.goals) <= 0 for each in simulated):
                break
            contest.simulate([one.shape])


def _in_order(screened: Iterable[Screened], goals: Sequence[Goal]) -> list[Screened]:
    """Return the fleets that could meet the goals, the cheapest first; where none could, those that miss least."""
    by_miss = sorted(screened, key=lambda one: estimated_miss(one, goals))
    able = [one for one in by_miss if estimated_miss(one, goals) <= SLACK]
    return sorted(able or by_miss[:WAVE], key=lambda one: (one.per_million, one.tpot_s))


def _fewest(contest: Contest, screened: Sequence[Screened]) -> None:
    """Search the lines for the fewest targets, then race what was found and its neighbours.

    First the line of each kind that looks cheapest is searched, then the cheapest of each pair of places, then the
    others, as far as they cost no more than the best so far.
    """
    lines = sorted(lines_of(screened, contest.goals), key=FleetsByTargets.expected_cost)
    by_family = {line.family: line for line in reversed(lines)}
    by_kind = {line.family[0]: line for line in reversed(lines)}
    ranks = [(line is not by_kind[line.family[0]]) + (line is not by_family[line.family]) for line in lines]
    for rank, factor in enumerate((math.inf, TOO_DEAR, 1.0)):
        group = [line for line, own in zip(lines, ranks, strict=True) if own == rank]
        for line in group:
            example = by_family[line.family] if rank == 2 else by_kind[line.family[0]]
            line.missed = example.missed
        most = factor * _least_cost(lines, contest)
        while probes := [(line, one) for line in group if (one := line.probe(most)) is not None]:
            contest.simulate([one.shape for _, one in probes])
            for line, one in probes:
                line.look(one, contest.entrants[one.shape.title])
    for _ in range(MAX_ROUNDS):
        least = _least_cost(lines, contest)
        contest.simulate([one.shape for line in lines for one in line.around(least, contest.entrants)])
        contest.race()
        if not [line for line in lines if line.was_luck(contest.entrants, contest.leader)]:
            break


def lines_of(screened: Iterable[Screened], goals: Sequence[Goal]) -> list["FleetsByTargets"]:
    """Sort fleets that can carry the load into lines."""
    lines: dict[tuple[Family, int], dict[int, list[Screened]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(screened, key=lambda one: one.tpot_s):
        if math.isfinite(one.tpot_s):
            lines[one.shape.family, one.shape.drafters][one.shape.targets].append(one)
    return [FleetsByTargets([line[targets] for targets in sorted(line)], goals) for line in lines.values()]


def _least_cost(lines: Iterable["FleetsByTargets"], contest: Contest) -> float:
    """Return the cost of the cheapest fleet that was found to reach the goals, and may be chosen."""
    found = [line.found for line in lines if line.found is not None and contest.may_win(line.found.shape)]
    return min((one.cost_per_hour for one in found), default=math.inf)


class FleetsByTargets:
    """Fleets of a family and a number of drafters by their targets, the best levers of each number first.

    More targets are never slower: those up to the place `below` miss the goals, those from `above` on meet them.
    `missed`: what simulations said over what equations said, of the goal that is missed most.
    """

    def __init__(self, fleets: Sequence[Sequence[Screened]], goals: Sequence[Goal]) -> None:
        self.fleets, self.goals = fleets, goals
        self.below, self.above = -1, len(fleets)
        self.looks, self.missed = 0, 1.0

    @property
    def family(self) -> Family:
        """The family of its fleets."""
        return self.fleets[0][0].shape.family

    @property
    def found(self) -> Screened | None:
        """The fewest targets that are known to reach the goals."""
        return self.fleets[self.above][0] if self.above < len(self.fleets) else None

    def expected_cost(self) -> float:
        """What the fleet costs that equations say reaches the goals with the fewest targets."""
        probe = self.probe()
        return math.inf if probe is None else probe.cost_per_hour

    def probe(self, most_cost: float = math.inf) -> Screened | None:
        """Return the fleet to look at next, at this cost at most; None where nothing is left to look at."""
        affordable = sum(fleets[0].cost_per_hour <= most_cost for fleets in self.fleets)
        places = range(self.below + 1, min(self.above, affordable))
        if not places:
            return None
        misses = [estimated_miss(self.fleets[place][0], self.goals) for place in places]
        if self.looks >= TRUSTED or not all(map(math.isfinite, misses)):
            return self.fleets[(places.start + places.stop - 1) // 2][0]
        hopeful = [place for place, miss in zip(places, misses, strict=True) if (1 + miss) * self.missed <= 1]
        twice = [place for place in places if self.below >= 0 and self._targets(place) >= 2 * self._targets(self.below)]
        return self.fleets[(hopeful or twice or places[-1:])[0]][0]

    def _targets(self, place: int) -> int:
        return self.fleets[place][0].shape.targets

    def look(self, one: Screened, entrant: Entrant) -> None:
        """Take what the trials say of a fleet that was probed."""
        place = next(place for place, fleets in enumerate(self.fleets) if fleets[0] is one)
        miss, expected = entrant.worst_miss(self.goals), estimated_miss(one, self.goals)
        if miss <= 0:
            self.above = place
        else:
            self.below = place
        self.looks += 1
        if math.isfinite(miss) and math.isfinite(expected):
            self.missed = (1 + miss) / (1 + expected)

    def around(self, least_cost: float, entrants: dict[str, Entrant]) -> list[Screened]:
        """Return the fleets next to what was found with the best few levers, if cheap and not far from the goals."""
        near = [self.fleets[place] for place in (self.below, self.above) if 0 <= place < len(self.fleets)]
        return [one for fleets in near if self._is_hopeful(fleets[0], entrants)
                for one in fleets[:LEVERS] if one.cost_per_hour <= least_cost]  # fmt: skip

    def _is_hopeful(self, one: Screened, entrants: dict[str, Entrant]) -> bool:
        """Whether other levers could make as many targets reach the goals."""
        if one.shape.title not in entrants:
            return one is self.found
        return entrants[one.shape.title].worst_miss(self.goals) <= CLEARLY - 1

    def was_luck(self, entrants: dict[str, Entrant], leader: Entrant | None) -> bool:
        """Whether more seeds say that what was found misses the goals; then one target more is found."""
        if self.found is None or (leader is not None and leader.cost_per_hour < self.found.cost_per_hour):
            return False
        tried = [entrants[one.shape.title] for one in self.fleets[self.above] if one.shape.title in entrants]
        if any(one.worst_miss(self.goals) <= 0 for one in tried) or self.above + 1 >= len(self.fleets):
            return False
        self.above += 1
        return True
