"""Simulations of fleets, and what they say: the means of each fleet, the leader, and its rivals.

Trials of equal seeds share their requests and what drafts yield, so fleets are compared by the differences of equal
seeds. With k rivals each difference is tested at CONFIDENCE of all k together (Bonferroni), one-sided.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from scipy.special import stdtrit

from experiments.plan.goals import Goal
from experiments.plan.question import FleetShape, Question
from fleet.errors import InputError
from fleet.records.metrics.measure import assess
from fleet.records.metrics.window import with_percentiles
from fleet.scenario.cost import per_million_tokens
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import mean_lengths
from sim.run import observe

KEPT = (
    "throughput", "slo_attainment", "load", "target_load", "wait_s", "service_s", "communication_s", "verify_s",
    "acceptance_length",
)  # fmt: skip
TIMES = ("tpot", "ttft", "latency")
CONFIDENCE = 0.95
INDIFFERENT = 0.01  # what costs less than this more, as a share, is as good
CLEARLY = 1.10  # a first trial that misses a goal by this factor is not tried again
CLEARLY_P99 = 1.20  # the same of a 99th percentile, which few requests decide
FAR = 0.10  # what costs that much more in the only common trial is out
SAME_COST = 1e-9


class Trial(msgspec.Struct, frozen=True):
    """What one simulation says; trials of other fleets have the same seeds.

    - `values`: metrics by name, of the whole fleet.
    - `overload`: the verdict where it was offered more than it can carry; empty else.
    """

    shape: FleetShape
    seed: int
    values: dict[str, float]
    overload: str = ""


Tries = Callable[[Sequence[tuple[FleetShape, int]]], Iterable[Trial]]
"""Simulate fleets with seeds, in any order."""


def try_out(question: Question, shape: FleetShape, seed: int, scenario: Scenario | None = None) -> Trial:
    """Simulate a fleet once; `scenario`: in its place, of changed step times for example."""
    simulated = question.scenario(shape) if scenario is None else scenario
    try:
        metrics, overload = assess(observe(msgspec.structs.replace(simulated, seed=simulated.seed + seed)))
    except InputError as error:
        raise InputError(f"{shape.title}: {error}") from error
    named = with_percentiles(metrics)
    values = {name: metric.value for name, metric in named.items() if name in KEPT or name.startswith(TIMES)}
    values["throughput"] *= question.copies(shape)
    # Arrivals: how much of what they ask for falls into the window is chance.
    tokens_per_s = offered_tokens_per_s(question) if question.arrivals_per_s else values["throughput"]
    values["cost_per_million"] = per_million_tokens(question.cost_per_hour(shape), tokens_per_s)
    return Trial(shape, seed, values, overload.line() if overload is not None else "")


def offered_tokens_per_s(question: Question) -> float:
    """What the arrivals ask for in a second."""
    return question.arrivals_per_s * mean_lengths(question.workload)[1]


class Entrant(msgspec.Struct, frozen=True):
    """All trials of one fleet, by seed."""

    title: str
    cost_per_hour: float
    trials: tuple[Trial, ...]

    @property
    def shape(self) -> FleetShape:
        """The fleet."""
        return self.trials[0].shape

    def values(self, metric: str) -> list[float]:
        """The values of a metric, seed by seed."""
        return [trial.values[metric] for trial in self.trials if metric in trial.values]

    def mean(self, metric: str) -> float:
        """The mean of a metric over the seeds; NaN where it was not measured."""
        values = self.values(metric)
        return float(np.mean(values)) if values else math.nan

    def half_width(self, metric: str) -> float:
        """Half of the 95 % interval of a metric's mean over the seeds; NaN for fewer than two."""
        return _half_width(self.values(metric), (1 + CONFIDENCE) / 2)

    def worst_miss(self, goals: Iterable[Goal]) -> float:
        """By which share the goal is missed that is missed most; negative where all are met, infinite if overloaded."""
        if any(trial.overload for trial in self.trials):
            return math.inf
        misses = [goal.miss(value) if not math.isnan(value := self.mean(goal.metric)) else math.inf for goal in goals]
        return max(misses, default=-math.inf)

    def misses_clearly(self, goals: Iterable[Goal]) -> bool:
        """Whether a goal is missed beyond chance, or by far in the only trial."""
        for goal in goals:
            half, value = self.half_width(goal.metric), self.mean(goal.metric)
            if math.isnan(half):
                if goal.miss(value) > (CLEARLY_P99 if "p99" in goal.metric else CLEARLY) - 1:
                    return True
            elif goal.miss(value - half if goal.sense == "at most" else value + half) > 0:
                return True
        return self.worst_miss(()) == math.inf

    def is_at_the_edge(self, goals: Iterable[Goal]) -> bool:
        """Whether chance decides if a goal is met; of a single trial, whether it is neither met nor missed by far."""
        for goal in goals:
            half, value = self.half_width(goal.metric), self.mean(goal.metric)
            half = (CLEARLY - 1) * value if math.isnan(half) else half
            if goal.miss(value - half) * goal.miss(value + half) <= 0:
                return True
        return False


def _half_width(values: Sequence[float], level: float) -> float:
    """Half of Student's interval of a mean; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    return float(stdtrit(len(values) - 1, level)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


class Gap(msgspec.Struct, frozen=True):
    """How much worse than the leader a fleet is, as a share, and half of the interval of that; NaN if unknown."""

    share: float
    half: float

    @property
    def is_clear(self) -> bool:
        """Whether it is worse beyond chance, or by far in the only trial."""
        return self.share > FAR if math.isnan(self.half) else self.share - self.half > 0

    @property
    def is_nothing(self) -> bool:
        """Whether it is as good, for all practical purposes."""
        return self.share + self.half < INDIFFERENT


def entrants_of(trials: Iterable[Trial], costs: Mapping[str, float]) -> dict[str, Entrant]:
    """Collect trials by fleet; `costs`: of an hour, by the fleets' titles."""
    by_title: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_title[trial.shape.title].append(trial)
    return {
        title: Entrant(title, costs[title], tuple(sorted(own, key=lambda trial: trial.seed)))
        for title, own in by_title.items()
    }


def leader_of(entrants: Iterable[Entrant], goals: Sequence[Goal], open_loop: bool) -> Entrant | None:
    """Return the best fleet that meets the goals on average; None if none does.

    The cheapest one for a million tokens; of fleets that cost the same, the one with the quickest tokens.
    """
    meeting = [one for one in entrants if one.worst_miss(goals) <= 0]
    metric = "tpot_s" if open_loop else "cost_per_million"
    return min(meeting, key=lambda one: (one.cost_per_hour if open_loop else 0.0, one.mean(metric)), default=None)


def gap_to(leader: Entrant, rival: Entrant, rivals: int, open_loop: bool) -> Gap:
    """Return how much worse than the leader a rival is: in cost, or where that is the same, in time for a token."""
    dearer = rival.cost_per_hour / leader.cost_per_hour - 1
    if open_loop and abs(dearer) > SAME_COST:
        return Gap(dearer, 0.0)
    metric = "tpot_s" if open_loop else "cost_per_million"
    theirs, ours = ({trial.seed: trial.values[metric] for trial in one.trials} for one in (rival, leader))
    shares = [theirs[seed] / ours[seed] - 1 for seed in theirs if seed in ours]
    share = float(np.mean(shares)) if shares else math.nan
    return Gap(share, _half_width(shares, 1 - (1 - CONFIDENCE) / max(rivals, 1)))


def unsettled(
    leader: Entrant, entrants: Iterable[Entrant], goals: Sequence[Goal], open_loop: bool, nothing_too: bool = False
) -> list[Entrant]:
    """Return the rivals that could still be better than the leader; `nothing_too`: and those as good as it.

    Those that would be better, but for a goal that they miss by no more than chance, are among them.
    """
    rivals = [one for one in entrants if one.title != leader.title and not one.misses_clearly(goals)]
    gaps = {one.title: gap_to(leader, one, len(rivals), open_loop) for one in rivals}
    near = [one for one in rivals if not gaps[one.title].is_clear]
    return [one for one in near if nothing_too or one.worst_miss(goals) > 0 or not gaps[one.title].is_nothing]
