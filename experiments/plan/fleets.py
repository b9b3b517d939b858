"""The best fleet of a budget for each method of speculation: equations choose what is simulated, simulations rank.

All fleets of a question have the same requests, seed by seed. Goals with arrivals ask for the cheapest fleet that meets
them, and of equally cheap ones for the fastest; otherwise the fastest fleet that meets the goals is the best.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from specfleet.experiments.plan.budget import Deployment, Estimate, FleetQuestion, Load, enough_for, estimates
from specfleet.experiments.plan.trials import SAME_COST, Gap, Interval, Sample, Trials, gap_between
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.fast.choice import import_failure

SEEDS = (1, 3, 6)  # of a first look, of the best fleets of each method, and of the best of all
FIRST, KEPT = 6, 3  # fleets of a method in the first look, and after it
CLOSE = 0.05  # difference, as a share, up to which fleets get all seeds
SPAN = 20  # length of a simulation, in times of a request
REQUESTS = (1000, 6000)  # of a simulation: the least and the most
SLOW_SHARE = 4  # drafters elsewhere are simulated event by event, and have so many times fewer requests
ROUNDS = 3  # of neighbours in depth


class Simulations:
    """Simulations of a budget's fleets under the question's load.

    - `estimates`: all fleets by title. `best`: the best one of each method, the best first.
    """

    def __init__(
        self,
        question: FleetQuestion,
        every: Sequence[Estimate],
        jobs: int,
        done: Callable[[str], None],
        first_seed: int = 0,
    ) -> None:
        load = question.load
        self.in_flight = load.per_s * every[0].request_s if load.per_s else load.in_flight
        self.question, self.jobs, self.requests = question, jobs, int(np.clip(SPAN * self.in_flight, *REQUESTS))
        self.trials = Trials(done, first_seed)
        self.estimates = {one.fleet.title: one for one in every}
        self.best: list[Deployment] = []
        import_failure()  # loads the compiled loop, if it can be

    def scenario(self, fleet: Deployment, load: Load | None = None, most: int = REQUESTS[1]) -> Scenario:
        """Return the scenario that is simulated, under the question's load or another one.

        It has `most` requests, or enough for those in flight: with fewer, most of them would begin at once.
        """
        own = load or self.question.load
        share = own.per_s / self.question.load.per_s if own.per_s else 1.0
        requests = int(np.clip(share * self.requests, REQUESTS[0], most)) // (SLOW_SHARE if fleet.drafters else 1)
        return fleet.scenario(own, max(requests, enough_for(share * self.in_flight)))

    def run(self, fleets: Sequence[Deployment], seeds: int) -> None:
        """Give each fleet that many seeds."""
        several = any(one.drafters for one in fleets)  # compiled simulations are faster than a start of processes
        self.trials.run([self.scenario(one) for one in fleets], seeds, self.jobs if several else 1)

    def sample(self, fleet: Deployment) -> Sample:
        """Return the simulations of a fleet."""
        return Sample(tuple(self.trials.values[fleet.title]))

    def miss(self, fleet: Deployment) -> float:
        """By which share a fleet misses the goal that it misses most; infinite for more load than it carries."""
        return self.sample(fleet).worst_miss(self.question.goals)

    def times_s(self, fleet: Deployment) -> list[float]:
        """What is to be small, seed by seed: the mean time of a request; in a closed loop that of a token of all."""
        metric = "latency_s" if self.question.load.per_s else "token_s"
        return [values.get(metric, math.inf) for values in self.trials.values[fleet.title]]

    @property
    def winner(self) -> Deployment | None:
        """The best fleet; None if no fleet meets the goals."""
        return self.best[0] if self.miss(self.best[0]) <= 0 else None

    def rank(self, fleet: Deployment) -> tuple[float, ...]:
        """Return a key: goals met, then cost if the question asks for it, then time."""
        miss = self.miss(fleet)
        if miss > 0:
            return (1.0, miss, 0.0)
        return (0.0, fleet.cost_per_hour if self.question.by_cost else 0.0, float(np.mean(self.times_s(fleet))))

    def gap(self, fleet: Deployment, best: Deployment) -> Gap:
        """Return by which share a fleet is slower than the best one."""
        return gap_between(self.times_s(fleet), self.times_s(best))

    def interval(self, fleet: Deployment, metric: str) -> Interval:
        """Return a metric's mean, and the 95 % interval of one more run."""
        tried = self.sample(fleet)
        mean, runs = tried.mean(metric), len(tried.trials)
        half = tried.half_width(metric) * math.sqrt(runs + 1) if runs > 1 else 0.0
        return Interval(mean, mean - half, mean + half)


def find(question: FleetQuestion, jobs: int = 1, done: Callable[[str], None] = lambda _what: None) -> Simulations:
    """Search a budget; InputError where nothing fits or carries the load.

    - `jobs`: simulations at once, of those that are not compiled; `done`: called after each with its fleet.
    """
    every = estimates(question)
    simulations = Simulations(question, every, jobs, done)
    by_method: dict[str, list[Estimate]] = defaultdict(list)
    for one in every:
        if one.request_s < math.inf:
            by_method[one.fleet.candidate.name].append(one)
    best = simulations.best
    for own in by_method.values():
        near = _cheapest(simulations, own) if question.by_cost else _first(own)
        best.append(_best_of(simulations, near, own))
    best.sort(key=simulations.rank)
    close = [one for one in best if simulations.rank(one)[:2] == simulations.rank(best[0])[:2]]
    simulations.run([one for one in close if simulations.gap(one, best[0]).value < CLOSE], SEEDS[2])
    best.sort(key=simulations.rank)
    while len(simulations.sample(best[0]).trials) < SEEDS[2]:  # with all seeds another one may come first
        simulations.run(best[:1], SEEDS[2])
        best.sort(key=simulations.rank)
    return simulations


def _first(own: Sequence[Estimate]) -> list[Estimate]:
    """Return the fastest fleets by equations: first the best depth of each way to use the devices, then others."""
    best: dict[tuple[str, int, int], Estimate] = {}
    for one in own:
        best.setdefault((one.fleet.candidate.target, one.fleet.replicas, one.fleet.sharing), one)
    return list(best.values())[: FIRST if not own[0].fleet.drafters else KEPT]


def _cheapest(simulations: Simulations, own: Sequence[Estimate]) -> list[Estimate]:
    """Return the fleets at the least cost at which one meets the goals in a first look, and a cost below and above."""
    levels: dict[float, list[Estimate]] = defaultdict(list)
    for one in own:
        levels[round(one.fleet.cost_per_hour, 6)].append(one)
    costs = sorted(levels)
    low, high = 0, len(costs) - 1
    while low < high:
        middle = (low + high) // 2
        few = _first(levels[costs[middle]])
        simulations.run([one.fleet for one in few], SEEDS[0])
        if any(simulations.miss(one.fleet) <= 0 for one in few):
            high = middle
        else:
            low = middle + 1
    return [one for cost in costs[max(low - 1, 0) : low + 2] for one in _first(levels[cost])]


def _best_of(simulations: Simulations, near: Sequence[Estimate], own: Sequence[Estimate]) -> Deployment:
    """Return the best fleet of a method: a look at some, then at their neighbours in depth, then more seeds."""
    known = {one.fleet.title for one in own}
    fleets = [one.fleet for one in near]
    for _ in range(ROUNDS):
        simulations.run(fleets, SEEDS[0])
        first = sorted(fleets, key=simulations.rank)[:2]
        neighbours = [msgspec.structs.replace(one, depth=one.depth + more) for one in first for more in (-1, 1)]
        fresh = {one.title: one for one in neighbours if one.title in known - {each.title for each in fleets}}
        if not fresh:
            break
        fleets += fresh.values()
    simulations.run(fleets, SEEDS[0])
    kept = sorted(fleets, key=simulations.rank)[:KEPT]
    simulations.run(kept, SEEDS[1])
    best = min(kept, key=simulations.rank)
    if simulations.miss(best) > 0 and simulations.question.by_cost:  # the first look was luck
        dearer = [one for one in own if one.fleet.cost_per_hour > max(each.cost_per_hour for each in kept)]
        if dearer:
            cheapest = min(one.fleet.cost_per_hour for one in dearer)
            level = [one for one in dearer if one.fleet.cost_per_hour <= cheapest * (1 + SAME_COST)]
            return min(best, _best_of(simulations, _first(level), own), key=simulations.rank)
    return best
