"""The best fleet of each method of speculation: equations choose what is simulated, simulations rank.

All fleets of a question have the same requests, seed by seed. No fleet is simulated whose load comes within a margin of
its capacity (`deployments.MARGIN`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from specfleet.experiments.plan.deployments import ENOUGH, Deployment, Estimate, Load, Question, estimates, requests_for
from specfleet.experiments.plan.trials import INDIFFERENT, Interval, Sample, Trials, gap_between
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.sim.fast.choice import import_failure

SEEDS = (1, 3, 6)  # of a first look, of the best fleets of each method, and of the best of all
FIRST, KEPT = 6, 3  # fleets of a method in the first look, and after it
SLOW_FEW = 2  # the same of slow ones
CLOSE = 0.05  # difference, as a share, up to which fleets get all seeds
LEAST = {True: 1000, False: 96}  # requests of a simulation with arrivals, and in a closed loop, which varies less
SLOW_SHARE = 4  # fleets that are simulated event by event have so many times fewer requests
ROUNDS = 3  # of neighbours in depth
DEARER = 2.0  # times the cost of the best tokens up to which stars of other numbers of targets are shown
SLACK = 0.10  # by how much equations may say that a goal is missed
SAME_COST = 1e-9

Nothing = Callable[[str], None]


class Simulations:
    """Simulations of a question's fleets under its load.

    - `estimates`: all fleets by title. `notes`: on those that have no room. `best`: of each method, the best first.
    """

    def __init__(self, question: Question, jobs: int, done: Nothing, first_seed: int = 0) -> None:
        every, self.notes = estimates(question)
        self.question, self.jobs = question, jobs
        self.trials = Trials(done, first_seed)
        self.estimates = {one.fleet.title: one for one in every}
        self.best: list[Deployment] = []
        self.at_once = question.load.per_s * min(one.request_s for one in every)
        import_failure()  # loads the compiled loop, if it can be

    def scenario(self, fleet: Deployment, load: Load | None = None, most: int = 10**9) -> Scenario:
        """Return the scenario that is simulated, under the question's load or another one.

        It has `most` requests, or enough for those in flight.
        """
        own = load or self.question.load
        in_flight = own.at_once(fleet.replicas)
        if own.per_s:
            in_flight = math.ceil(own.per_s / self.question.load.per_s * self.at_once)
        requests = requests_for(in_flight, LEAST[own.per_s > 0])
        if fleet.is_slow:
            requests = max(requests // SLOW_SHARE, ENOUGH * in_flight)
        return fleet.scenario(own, max(min(requests, most), in_flight))

    def run(self, fleets: Sequence[Deployment], seeds: int) -> None:
        """Give each fleet that many seeds."""
        several = any(one.is_slow for one in fleets)  # compiled simulations are faster than a start of processes
        self.trials.run([self.scenario(one) for one in fleets], seeds, self.jobs if several else 1)

    def sample(self, fleet: Deployment) -> Sample:
        """Return the simulations of a fleet."""
        return Sample(tuple(self.trials.values[fleet.title]))

    def miss(self, fleet: Deployment) -> float:
        """By which share a fleet misses the goal that it misses most; infinite for more load than it carries."""
        return self.sample(fleet).worst_miss(self.question.goals)

    def scores(self, fleet: Deployment) -> list[float]:
        """What is to be small, seed by seed: the time of a request, in a closed loop of a token, or a token's cost."""
        metric = "latency_s" if self.question.load.per_s else "token_s"
        factor = fleet.cost_per_hour if self.question.aim == "token" else 1.0
        return [factor * values.get(metric, math.inf) for values in self.trials.values[fleet.title]]

    @property
    def winner(self) -> Deployment | None:
        """The best fleet; None if no fleet meets the goals."""
        return self.best[0] if self.miss(self.best[0]) <= 0 else None

    def rank(self, fleet: Deployment) -> tuple[float, ...]:
        """Return a key: goals met, then the hour's cost if the question asks for it, then time or a token's cost."""
        miss = self.miss(fleet)
        if miss > 0:
            return (1.0, miss, 0.0)
        hour = fleet.cost_per_hour if self.question.aim == "hour" else 0.0
        return (0.0, hour, float(np.mean(self.scores(fleet))))

    def gap(self, fleet: Deployment, best: Deployment) -> Interval:
        """Return by which share a fleet is slower than the best one, or its tokens dearer."""
        return gap_between(self.scores(fleet), self.scores(best))

    def standing(self, fleet: Deployment) -> str:
        """Return what a fleet is beside the best one: best, level, by how much it is worse, or what it misses."""
        best, miss, aim = self.best[0], self.miss(fleet), self.question.aim
        if miss == math.inf:
            return "cannot carry the load"
        if miss > 0:
            sample = self.sample(fleet)
            missed = max(self.question.goals, key=lambda goal: goal.miss(sample.mean(goal.metric)))
            return f"misses {missed.text} by {miss:.0%}"
        if fleet == best:
            return "best"
        if aim == "hour" and fleet.cost_per_hour > best.cost_per_hour * (1 + SAME_COST):
            return f"costs {fleet.cost_per_hour / best.cost_per_hour - 1:+.0%}"
        gap = self.gap(fleet, best)
        is_level = gap.value < INDIFFERENT or gap.low <= 0
        return "level" if is_level else f"{gap.value:+.0%} {'cost' if aim == 'token' else 'time'}"


def find(question: Question, jobs: int = 1, done: Nothing = lambda _what: None) -> Simulations:
    """Search the fleets of a question; InputError where nothing fits or carries the load.

    - `jobs`: simulations at once, of those that are not compiled; `done`: called after each with its fleet.
    """
    simulations = Simulations(question, jobs, done)
    families: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
    for one in simulations.estimates.values():
        if one.may_win:
            place = one.fleet.candidate.target if question.devices is None else ""
            families[one.fleet.candidate.name, place].append(one)
    best = simulations.best
    for own in families.values():
        near = _cheapest(simulations, own) if question.aim == "hour" else _first(question, own)
        best.append(_best_of(simulations, near, own))
    best.sort(key=simulations.rank)
    close = [one for one in best if simulations.rank(one)[:2] == simulations.rank(best[0])[:2]]
    simulations.run([one for one in close if simulations.gap(one, best[0]).value < CLOSE], SEEDS[2])
    best.sort(key=simulations.rank)
    while len(simulations.sample(best[0]).trials) < SEEDS[2]:  # with all seeds another one may come first
        simulations.run(best[:1], SEEDS[2])
        best.sort(key=simulations.rank)
    return simulations


def _first(question: Question, own: Sequence[Estimate]) -> list[Estimate]:
    """Return the best fleets by equations: the best depth of each way to use the devices."""
    able = [one for one in own if _estimated_miss(question, one) <= SLACK] or own
    best: dict[tuple[str, int, int], Estimate] = {}
    for one in able:
        best.setdefault((one.fleet.candidate.target, one.fleet.replicas, one.fleet.sharing), one)
    fleets = list(best.values())
    if own[0].fleet.candidate.base.verifiers.max_num_seqs == 1:  # a star, whose simulations are fast
        return [one for one in fleets if one.per_million <= DEARER * fleets[0].per_million]
    return fleets[: SLOW_FEW if own[0].fleet.is_slow else FIRST]


def _estimated_miss(question: Question, one: Estimate) -> float:
    """By how much equations say that a goal is missed; they know mean times of tokens."""
    _, answer = mean_lengths(one.fleet.candidate.base.workload)
    return max((goal.miss(one.request_s / answer) for goal in question.goals if goal.metric[:4] == "tpot"), default=0.0)


def _cheapest(simulations: Simulations, own: Sequence[Estimate]) -> list[Estimate]:
    """Return the fewest targets at each place that meet the goals in a first look, and one fewer.

    More targets are never slower, so that each place is bisected, as far as it costs no more than what was found.
    """
    lines: dict[tuple[str, int], list[Estimate]] = defaultdict(list)
    for one in _first_of_each(own):
        lines[one.fleet.candidate.target, one.fleet.sharing].append(one)
    near, least = list[Estimate](), math.inf
    for line in sorted(lines.values(), key=lambda line: line[0].fleet.cost_per_hour):
        line.sort(key=lambda one: one.fleet.cost_per_hour)
        affordable = [one for one in line if one.fleet.cost_per_hour <= least * (1 + SAME_COST)]
        low, high = 0, len(affordable) - (least == math.inf)
        while low < high:
            middle = (low + high) // 2
            simulations.run([affordable[middle].fleet], SEEDS[0])
            if simulations.miss(affordable[middle].fleet) <= 0:
                high = middle
            else:
                low = middle + 1
        near += affordable[max(low - 1, 0) : low + 1]
        if low < len(affordable):
            simulations.run([affordable[low].fleet], SEEDS[0])
            if simulations.miss(affordable[low].fleet) <= 0:
                least = min(least, affordable[low].fleet.cost_per_hour)
    return [one for one in near if one.fleet.cost_per_hour <= least * (1 + SAME_COST)]


def _first_of_each(own: Sequence[Estimate]) -> list[Estimate]:
    """Return the fastest depth, by equations, of each number of targets at each place."""
    best: dict[tuple[str, int, int], Estimate] = {}
    for one in sorted(own, key=lambda one: one.request_s):
        best.setdefault((one.fleet.candidate.target, one.fleet.replicas, one.fleet.sharing), one)
    return list(best.values())


def _best_of(simulations: Simulations, near: Sequence[Estimate], own: Sequence[Estimate]) -> Deployment:
    """Return the best fleet of a method: a look at some, then at their neighbours in depth, then more seeds."""
    known = {one.fleet.title for one in own}
    fleets = [one.fleet for one in near]
    for _ in range(ROUNDS):
        simulations.run(fleets, SEEDS[0])
        first = sorted(fleets, key=simulations.rank)[:2]
        neighbours = [one for fleet in first for one in _neighbours(fleet)]
        fresh = {one.title: one for one in neighbours if one.title in known - {each.title for each in fleets}}
        if not fresh:
            break
        fleets += fresh.values()
    simulations.run(fleets, SEEDS[0])
    kept = sorted(fleets, key=simulations.rank)[: SLOW_FEW if own[0].fleet.is_slow else KEPT]
    simulations.run(kept, SEEDS[1])
    best = min(kept, key=simulations.rank)
    if simulations.miss(best) > 0 and simulations.question.aim == "hour":  # the first look was luck
        dearer = [one for one in own if one.fleet.cost_per_hour > max(each.cost_per_hour for each in kept)]
        if dearer:
            cheapest = min(one.fleet.cost_per_hour for one in dearer)
            level = [one for one in _first_of_each(dearer) if one.fleet.cost_per_hour <= cheapest * (1 + SAME_COST)]
            return min(best, _best_of(simulations, level[:FIRST], own), key=simulations.rank)
    return best


def _neighbours(fleet: Deployment) -> list[Deployment]:
    """Return the fleets of one draft token less and more, and the one with the other rule for late drafts."""
    replace = msgspec.structs.replace
    late = replace(fleet, late="decode" if fleet.late == "skip" else "skip")
    return [*(replace(fleet, depth=fleet.depth + more) for more in (-1, 1)), late]
