"""Simulations of fleets, and what they say: the means of each fleet, the leader, and its rivals.

Trials of equal seeds share their requests and what drafts yield, so fleets are compared by the differences of equal
seeds. With k rivals each difference is tested at CONFIDENCE of all k together (Bonferroni), one-sided.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from scipy.special import stdtrit

from specfleet.experiments.jobs import side_by_side
from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.question import FleetShape, Question
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import assess
from specfleet.fleet.records.metrics.window import with_percentiles
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import observe

KEPT = (  # metrics of a fleet, beside its times
    "throughput", "slo_attainment", "load", "target_load", "wait_s", "service_s", "communication_s", "verify_s",
    "acceptance_length", "overload",
)  # fmt: skip
TIMES = ("tpot", "ttft", "latency")
CONFIDENCE = 0.95
INDIFFERENT = 0.01  # what costs less than this more, as a share, is as good
CLEARLY = 1.10  # a first trial that misses a goal by this factor is not tried again
CLEARLY_P99 = 1.20  # the same of a 99th percentile, which few requests decide
FAR = 0.10  # what costs that much more in the only common trial is out
SAME_COST = 1e-9


Values = dict[str, float]
"""Metrics by name."""


def simulated(scenario: Scenario, seed: int = 0) -> Values:
    """Return the metrics of one simulation; `overload` is 1 for more load than the fleet carries."""
    try:
        metrics, overload = assess(observe(msgspec.structs.replace(scenario, seed=scenario.seed + seed)))
    except InputError as error:
        raise InputError(f"{scenario.name}: {error}") from error
    values = {name: metric.value for name, metric in with_percentiles(metrics).items()}
    return values | {"overload": float(overload is not None), "token_s": 1 / values["throughput"]}


class Trials:
    """Simulations of scenarios; `values`: by the scenario's name, seed by seed."""

    def __init__(self, done: Callable[[str], None], first_seed: int = 0) -> None:
        self.done, self.first_seed = done, first_seed
        self.values: dict[str, list[Values]] = defaultdict(list)

    def run(self, scenarios: Iterable[Scenario], seeds: int, jobs: int) -> None:
        """Give each scenario that many seeds, `jobs` simulations at once; `done` is called after each with its name."""
        once = {one.name: one for one in scenarios}.values()
        wanted = [(one, seed) for one in once for seed in range(len(self.values[one.name]), seeds)]
        arguments = [(one, self.first_seed + seed) for one, seed in wanted]
        results = side_by_side(simulated, arguments, jobs if len(wanted) > 1 else 1)
        for (one, _), values in zip(wanted, results, strict=True):
            self.values[one.name].append(values)
            self.done(one.name)


def fleet_values(question: Question, shape: FleetShape, values: Values) -> Values:
    """Return the metrics of a whole fleet and its cost, from a simulation of it or of the part that stands for it."""
    own = {name: value for name, value in values.items() if name in KEPT or name.startswith(TIMES)}
    own["throughput"] *= question.copies(shape)
    # Arrivals: how much of what they ask for falls into the window is chance.
    tokens_per_s = question.offered_tokens_per_s or own["throughput"]
    own["cost_per_million"] = per_million_tokens(question.cost_per_hour(shape), tokens_per_s)
    return own


class Interval(msgspec.Struct, frozen=True):
    """A mean over seeds and its 95 % interval."""

    value: float
    low: float
    high: float


class Sample(msgspec.Struct, frozen=True):
    """A fleet's simulations: metrics by name, seed by seed."""

    trials: tuple[Values, ...]

    def values(self, metric: str) -> list[float]:
        """The values of a metric, seed by seed."""
        return [trial[metric] for trial in self.trials if metric in trial]

    def mean(self, metric: str) -> float:
        """The mean of a metric over the seeds; NaN where it was not measured."""
        values = self.values(metric)
        return float(np.mean(values)) if values else math.nan

    def half_width(self, metric: str) -> float:
        """Half of the 95 % interval of a metric's mean over the seeds; NaN for fewer than two."""
        return _half_width(self.values(metric), (1 + CONFIDENCE) / 2)

    def worst_miss(self, goals: Iterable[Goal]) -> float:
        """By which share the goal is missed that is missed most; negative where all are met, infinite if overloaded."""
        if any(trial.get("overload") for trial in self.trials):
            return math.inf
        misses = [goal.miss(value) if not math.isnan(value := self.mean(goal.metric)) else math.inf for goal in goals]
        return max(misses, default=-math.inf)


class Entrant(Sample, frozen=True):
    """A fleet of a plan with its simulations."""

    shape: FleetShape
    cost_per_hour: float

    @property
    def title(self) -> str:
        """The fleet in words."""
        return self.shape.title

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


class Gap(Interval, frozen=True):
    """How much worse than another fleet one is, as a share; of a single trial, the ends of the interval are NaN."""

    @property
    def is_clear(self) -> bool:
        """Whether it is worse beyond chance, or by far in the only trial."""
        return self.value > FAR if math.isnan(self.low) else self.low > 0

    @property
    def is_nothing(self) -> bool:
        """Whether it is as good, for all practical purposes."""
        return self.high < INDIFFERENT


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
        return Gap(dearer, dearer, dearer)
    metric = "tpot_s" if open_loop else "cost_per_million"
    return gap_between(rival.values(metric), leader.values(metric), 1 - (1 - CONFIDENCE) / max(rivals, 1))


def gap_between(theirs: Sequence[float], ours: Sequence[float], level: float = (1 + CONFIDENCE) / 2) -> Gap:
    """Return by how much values are larger than those of the same seeds; `level`: of Student's quantile."""
    shares = [value / own - 1 for value, own in zip(theirs, ours, strict=False)]
    mean, half = float(np.mean(shares)), _half_width(shares, level)
    return Gap(mean, mean - half, mean + half)


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
