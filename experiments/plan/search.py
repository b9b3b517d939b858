"""The best fleet of each method of speculation: equations choose what is simulated, simulations rank.

All fleets of a question have the same requests, seed by seed. No fleet is simulated whose load comes within a margin of
its capacity (`deployments.MARGIN`).
"""

import math
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path

import msgspec
import numpy as np

from specfleet.experiments.console.printing import minutes
from specfleet.experiments.jobs import ALL, Workers, kept_file, side_by_side
from specfleet.experiments.plan.deployments import ENOUGH, Deployment, Estimate, Load, Question, estimates, requests_for
from specfleet.experiments.plan.trials import INDIFFERENT, Interval, Sample, Values, gap_between, simulated
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.sim.fast.choice import import_failure

SEEDS = (1, 3, 6)  # of a first look, of the best fleets of each method, and of the best of all
FIRST, KEPT = 6, 3  # fleets of a method in the first look, and those that get neighbours, then more seeds
SLOW_FEW = 2  # the same of slow ones
CLOSE = 0.05  # difference, as a share, up to which fleets get all seeds
LEAST = {True: 1000, False: 96}  # requests of a simulation with arrivals, and in a closed loop, which varies less
LONG = 2_000_000  # tokens of a compiled simulation above which a process pays
SLOW_SHARE = 4  # fleets with prefill servers have so many times fewer requests
ROUNDS = 6  # of neighbours, at most
DEARER = 2.0  # times the cost of the best tokens up to which stars of other numbers of targets are shown
SLACK = 0.10  # by how much equations may say that a goal is missed
SAME_COST = 1e-9
BY_TIME = attrgetter("request_s")

Nothing = Callable[[str], None]


class Simulations:
    """Simulations of a question's fleets under its load; equal seeds share their requests and what drafts yield.

    - `folder`: where simulations are kept, if anywhere. `estimates`: all fleets by title. `notes`: on those that have
      no room. `best`: of each method, the best first.
    - `leader`: the best one when it was last simulated. `fastest`: the best one before smaller ones, as good within
      1 %, were preferred.
    - `values`: metrics by title, seed by seed.
    """

    def __init__(
        self, question: Question, workers: Workers, done: Nothing, first_seed: int = 0, folder: Path | None = None
    ) -> None:
        every, self.notes = estimates(question)
        self.question, self.workers, self.done, self.first_seed = question, workers, done, first_seed
        self.folder = folder
        self.values: dict[str, list[Values]] = defaultdict(list)
        self.estimates = {estimate.fleet.title: estimate for estimate in every}
        self.best: list[Deployment] = []
        self.fastest: Deployment | None = None
        self.leader: Deployment | None = None
        self.part = ""  # of the search, in words
        self.at_once = question.load.per_s * min(estimate.request_s for estimate in every)
        import_failure()  # loads the compiled loop, if it can be

    def scenario(self, fleet: Deployment, load: Load | None = None, most: int = 10**9) -> Scenario:
        """Return the scenario that is simulated, under the question's load or another one.

        It has `most` requests, or enough for those in flight.
        """
        load = load or self.question.load
        in_flight = load.at_once(fleet.replicas)
        if load.per_s:
            in_flight = math.ceil(load.per_s / self.question.load.per_s * self.at_once)
        requests = requests_for(in_flight, LEAST[load.per_s > 0])
        if fleet.prefills:  # event by event
            requests = max(requests // SLOW_SHARE, ENOUGH * in_flight)
        return fleet.scenario(load, max(min(requests, most), in_flight))

    def run(self, fleets: Sequence[Deployment], seeds: int) -> None:
        """Give each fleet that many seeds; `done` is called after each simulation with the best fleet so far."""
        scenarios = {fleet.title: self.scenario(fleet) for fleet in fleets}
        wanted = [(title, seed) for title in scenarios for seed in range(len(self.values[title]), seeds)]
        is_long = any(made.workload.requests * mean_lengths(made.workload)[1] > LONG for made in scenarios.values())
        several = len(wanted) > 1 and (is_long or any(fleet.is_slow for fleet in fleets))
        workers = self.workers if several or isinstance(self.workers, str) else 1
        arguments = [(scenarios[title], self.first_seed + seed) for title, seed in wanted]
        names = [f"{resume_digest(scenario)} {seed}" for scenario, seed in arguments] if self.folder else []
        files = [kept_file(self.folder, name) for name in names]
        for (title, _), values in zip(wanted, side_by_side(simulated, arguments, workers, files, Values), strict=True):
            self.values[title].append(values)
            fleet = self.estimates[title].fleet
            if self.leader is None or self.rank(fleet) < self.rank(self.leader):
                self.leader = fleet
            self.done(f"{self.part}best so far: {self.leader.title}")

    def sample(self, fleet: Deployment) -> Sample:
        """Return the simulations of a fleet."""
        return Sample(tuple(self.values[fleet.title]))

    def miss(self, fleet: Deployment) -> float:
        """By which share a fleet misses the goal that it misses most, negative if none; infinite if overloaded."""
        sample = self.sample(fleet)
        if any(trial.get("overload") for trial in sample.trials):
            return math.inf
        misses = [goal.miss(sample.mean(goal.metric)) for goal in self.question.goals]
        return max((math.inf if math.isnan(miss) else miss for miss in misses), default=-math.inf)

    def scores(self, fleet: Deployment) -> list[float]:
        """What is to be small, seed by seed: the time of a request, in a closed loop of a token, or a token's cost."""
        metric = "latency_s" if self.question.load.per_s else "token_s"
        factor = fleet.cost_per_hour if self.question.aim == "token" else 1.0
        return [factor * values.get(metric, math.inf) for values in self.values[fleet.title]]

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

    def prefer_smallest(self) -> None:
        """Put the smallest fleet first that is as good as the best: fewest devices, the depth as now, the shortest."""
        best = self.fastest = self.best[0]
        now = best.candidate.present or None  # depth of a running server: a change has to gain twice as much

        def size(fleet: Deployment) -> tuple[int, bool, int]:
            return sum(fleet.devices.values()), fleet.depth != fleet.candidate.present, fleet.depth

        def is_as_good(fleet: Deployment) -> bool:
            for seeds, most in ((SEEDS[0], 2 * INDIFFERENT), (SEEDS[2], INDIFFERENT)):  # a seed's chance is 1 %
                self.run([fleet], seeds)
                further = 0.0 if self.rank(fleet)[:2] == self.rank(best)[:2] else math.inf
                if self.winner is None:  # from goals that none meets
                    further = (1 + self.miss(fleet)) / (1 + self.miss(best)) - 1
                if not max(further, self.gap(fleet, best).value) <= most * (1 + (fleet.depth == now)):
                    return False
            return True

        tried = [self.estimates[title].fleet for title, values in self.values.items() if values]
        present = msgspec.structs.replace(best, depth=best.candidate.present).title
        tried += [self.estimates[present].fleet] if present in self.estimates else []
        small = next(fleet for fleet in sorted(tried, key=size) if fleet == best or is_as_good(fleet))
        if self.winner is None:  # more targets are never slower, and were looked at first
            made = (one.fleet for one in self.estimates.values() if one.may_win and one.fleet.replicas < small.replicas)
            alike = (one for one in made if msgspec.structs.replace(one, replicas=small.replicas) == small)
            fewer = sorted(alike, key=size)
            small = [*fewer, small][bisect_left(fewer, True, key=is_as_good)]
        while small.depth > 1 and not small.is_slow and small.depth != small.candidate.present:
            shorter = msgspec.structs.replace(small, depth=small.depth - 1)
            if shorter.title not in self.estimates or not is_as_good(shorter):
                break
            small = shorter
        if small != best:
            kin = [other for other in self.best if family_of(self.question, other) == family_of(self.question, small)]
            self.best[:] = [small, *(other for other in self.best if other not in kin)]

    def standing(self, fleet: Deployment) -> str:
        """Return what a fleet is beside the best one: best, level, by how much it is worse, or what it misses."""
        best, miss, aim = self.best[0], self.miss(fleet), self.question.aim
        if miss == math.inf:
            return "cannot carry the load"
        if miss > 0:
            sample = self.sample(fleet)
            missed = max(self.question.goals, key=lambda goal: goal.miss(sample.mean(goal.metric)))
            by = miss if missed.unit == "s" else miss / (1 + miss)  # which is of a time, and tokens/s are its inverse
            return f"misses {missed.text} by {by:.0%}"
        if fleet == best:
            return "best"
        if aim == "hour" and fleet.cost_per_hour > best.cost_per_hour * (1 + SAME_COST):
            return f"{fleet.cost_per_hour / best.cost_per_hour - 1:.0%} dearer an hour"
        gap = self.gap(fleet, best)
        if gap.value < INDIFFERENT or gap.low <= 0:
            return "level"
        what = "dearer a token" if aim == "token" else f"longer a {'request' if self.question.load.per_s else 'token'}"
        return f"{gap.value:.0%} {what}"


def find(
    question: Question,
    workers: Workers = 1,
    done: Nothing = lambda _what: None,
    folder: Path | None = None,
    shard: slice = ALL,
) -> Simulations:
    """Search the fleets of a question; InputError where nothing fits or carries the load.

    - `workers`: here they run simulations that are not compiled; `done`: called after each with the best so far.
    - `shard`: of the methods at their places.
    """
    simulations = Simulations(question, workers, done, folder=folder)
    families: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
    for estimate in simulations.estimates.values():
        if estimate.may_win:
            families[family_of(question, estimate.fleet)].append(estimate)
    best, share = simulations.best, list(families.values())[shard]
    if not share:
        raise InputError(f"--shard: there are {len(families)} methods to share; give no more shards")
    if question.aim != "hour":  # more at once, on a cluster
        first = [made.fleet for family in share for made in _first(question, family)]
        simulations.part = f"a first look, fleets: {len(first)}, methods: {len(share)}; "
        simulations.run(first, SEEDS[0])
    begun_s = time.monotonic()
    for through, family in enumerate(share):
        left_s = (time.monotonic() - begun_s) * (len(share) - through + 1) / max(through, 1)  # + 1: the last seeds
        left = f", about {minutes(left_s)} left" * (through > 0)
        simulations.part = f"method {through + 1} of {len(share)}{left}; "
        near = _cheapest(simulations, family) if question.aim == "hour" else _first(question, family)
        best.append(_best_of(simulations, near, family))
    best.sort(key=simulations.rank)
    close = [fleet for fleet in best if simulations.rank(fleet)[:2] == simulations.rank(best[0])[:2]]
    simulations.run([fleet for fleet in close if simulations.gap(fleet, best[0]).value < CLOSE], SEEDS[2])
    best.sort(key=simulations.rank)
    while len(simulations.sample(best[0]).trials) < SEEDS[2]:  # with all seeds another fleet may come first
        simulations.run(best[:1], SEEDS[2])
        best.sort(key=simulations.rank)
    simulations.prefer_smallest()
    return simulations


def family_of(question: Question, fleet: Deployment) -> tuple[str, str]:
    """Return how a fleet drafts, and its targets' place where no budget leaves that open."""
    return fleet.candidate.name, fleet.candidate.target if question.devices is None else ""


def able(question: Question, family: Sequence[Estimate]) -> Sequence[Estimate]:
    """Return the fleets that meet the goals of TPOT by equations, or nearly."""
    _, answer = mean_lengths(question.candidates[0].base.workload)
    goals = [goal for goal in question.goals if goal.metric[:4] == "tpot"]
    return [made for made in family if all(goal.miss(made.request_s / answer) <= SLACK for goal in goals)]


def _first(question: Question, family: Sequence[Estimate]) -> list[Estimate]:
    """Return the best fleets by equations, which know mean times: the best depth of each way to use the devices."""
    base = family[0].fleet.candidate.base
    ways = _first_of_each(able(question, family) or family)
    if base.verifiers.max_num_seqs == 1:  # a star, whose simulations are fast
        return [made for made in ways if made.per_million <= DEARER * ways[0].per_million]
    return ways[: SLOW_FEW if family[0].fleet.is_slow else FIRST]


def _first_of_each(estimates: Sequence[Estimate], by_late: bool = True) -> list[Estimate]:
    """Return the first estimate of each number of targets, with prefill servers, place and, if asked, late rule."""
    first: dict[tuple[str, int, int, str], Estimate] = {}
    for made in estimates:
        fleet = made.fleet
        first.setdefault((fleet.candidate.target, fleet.servers, fleet.sharing, fleet.late * by_late), made)
    return list(first.values())


def _cheapest(simulations: Simulations, family: Sequence[Estimate]) -> list[Estimate]:
    """Return the fewest targets at each place that meet the goals in a first look, and one fewer.

    More targets are never slower, so that each place is bisected; of each number the fastest by equations counts.
    """
    lines: dict[tuple[str, int], list[Estimate]] = defaultdict(list)
    for made in _first_of_each(sorted(family, key=BY_TIME), by_late=False):
        lines[made.fleet.candidate.target, made.fleet.sharing].append(made)
    near, least = list[Estimate](), math.inf

    def meets(made: Estimate) -> bool:
        simulations.run([made.fleet], SEEDS[0])
        return simulations.miss(made.fleet) <= 0

    for line in sorted(lines.values(), key=lambda line: line[0].fleet.cost_per_hour):
        line.sort(key=lambda made: made.fleet.cost_per_hour)
        affordable = [made for made in line if made.fleet.cost_per_hour <= least * (1 + SAME_COST)]
        low, high = 0, len(affordable) - (least == math.inf)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if meets(affordable[middle]) else (middle + 1, high)
        near += affordable[max(low - 1, 0) : low + 1]
        if low < len(affordable) and meets(affordable[low]):
            least = min(least, affordable[low].fleet.cost_per_hour)
    return [made for made in near if made.fleet.cost_per_hour <= least * (1 + SAME_COST)]


def _best_of(simulations: Simulations, near: Sequence[Estimate], family: Sequence[Estimate]) -> Deployment:
    """Return the best fleet of a method: a look at some, then at their neighbours, then more seeds."""
    known = {made.fleet.title for made in family}
    fleets, few = [made.fleet for made in near], SLOW_FEW if family[0].fleet.is_slow else KEPT
    for _ in range(ROUNDS):
        simulations.run(fleets, SEEDS[0])
        seen = {fleet.title for fleet in fleets}
        first = sorted(fleets, key=simulations.rank)[:few]
        fresh = {other.title: other for fleet in first for other in _neighbours(fleet) if other.title in known - seen}
        if not fresh:
            break
        fleets += fresh.values()
    simulations.run(fleets, SEEDS[0])
    kept = sorted(fleets, key=simulations.rank)[:few]
    simulations.run(kept, SEEDS[1])
    best = min(kept, key=simulations.rank)
    if simulations.miss(best) > 0 and simulations.question.aim == "hour":  # the first look was luck
        dearest = max(fleet.cost_per_hour for fleet in kept)
        dearer = [made for made in family if made.fleet.cost_per_hour > dearest]
        if dearer:
            most = min(made.fleet.cost_per_hour for made in dearer) * (1 + SAME_COST)
            level = [made for made in dearer if made.fleet.cost_per_hour <= most]
            level = _first_of_each(sorted(level, key=BY_TIME), by_late=False)
            return min(best, _best_of(simulations, level[:FIRST], family), key=simulations.rank)
    return best


def _neighbours(fleet: Deployment) -> list[Deployment]:
    """Return fleets a draft token, target a drafter or prefill server away, and of the other rule for late drafts."""
    replace, sharing, drafters = msgspec.structs.replace, fleet.sharing, fleet.drafters
    counts = range(max(sharing - 1, 1), sharing + 2) if drafters else ()
    shared = [replace(fleet, sharing=count, replicas=drafters * count) for count in counts if count != sharing]
    more = [1, -1] if fleet.prefills else []
    shared += [replace(fleet, replicas=fleet.replicas - by, prefills=fleet.prefills + by) for by in more]
    late = replace(fleet, late="decode" if fleet.late == "skip" else "skip")
    return [*(replace(fleet, depth=fleet.depth + more) for more in (-1, 1)), late, *shared]
