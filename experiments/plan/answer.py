"""The answer of a plan: the simulated fleets under each load, what they give, and what the best one is made of."""

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

import msgspec

from specfleet.experiments.plan.deployments import Deployment
from specfleet.experiments.plan.goals import Goal, in_words
from specfleet.experiments.plan.ranges import Ranges
from specfleet.experiments.plan.search import Simulations
from specfleet.experiments.plan.serving import held_tokens, row_limits
from specfleet.experiments.plan.trials import Interval
from specfleet.fleet.policies.admit import N_max
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.shown import number
from specfleet.fleet.stations.star import star_inputs
from specfleet.sim.analytic import N_full


class Row(msgspec.Struct, frozen=True):
    """A simulated fleet under a load.

    - `fleet`: in words. `method`: how it drafts. `target`: where its targets run.
    - `targets`, `prefills`, `drafters`: their numbers; `depth`: tokens of a draft; `devices`: of each kind.
    - `is_best`: whether it is the best of its method. `standing`: beside the best of all: best, level, by how much it
      is dearer or takes longer, or by how much it misses a goal.
    - `tokens_per_s`: of the whole fleet. `in_flight`: requests at a target, on average; `running`: those of them that
      run at once, as the others wait for `limit`, a key or the KV cache.
    - `kv_share`: KV cache that they need at their end, without those that wait for a key, over that of the target;
      none without a limit.
    - `metrics`: each with the interval of one more run; `seeds`: of each metric.
    """

    load: str
    fleet: str
    method: str
    target: str
    targets: int
    prefills: int
    drafters: int
    depth: int
    devices: dict[str, int]
    is_best: bool
    standing: str
    cost_per_hour: float
    per_million: float
    tokens_per_s: float
    in_flight: float
    running: float
    limit: str
    kv_share: float | None
    metrics: dict[str, Interval]
    seeds: int


def ranged(what: str, interval: Interval, unit: str, factor: float = 1.0) -> str:
    """Say a value and its range, the value alone where they are the same in print."""
    numbers = zip((interval.value, interval.low, interval.high), (4, 3, 3), strict=True)
    value, low, high = (number(factor * end, digits) for end, digits in numbers)
    ends = f" (up to {high})" if interval.low == interval.value else f" ({low} .. {high})"
    ends = "" if interval.low == interval.high else ends if interval.high < math.inf else " (range not known)"
    return " ".join(filter(None, (what, value, unit))) + ends


class Reached(msgspec.Struct, frozen=True):
    """A goal in its unit, what the chosen fleet makes of it, its range, no wider than a value where that is not known.

    `state`: met, at its edge, or missed, as the range is; where that is not known, as what its ends are simulated for.
    """

    text: str
    unit: str
    limit: float
    value: float
    low: float
    high: float
    state: str

    @property
    def said(self) -> str:
        """What is reached in the goal's unit, and its range."""
        unit, factor = ("ms", 1e3) if self.unit == "s" else (self.unit, 1.0)
        return ranged("", Interval(self.value, self.low, self.high), unit, factor)

    @property
    def line(self) -> str:
        """The goal in words, its state, and what is reached."""
        return f"{in_words(self.text)}: {self.state}, {self.said}"


class RuleOfThumb(msgspec.Struct, frozen=True):
    """StarSD's rule of thumb for the best drafter elsewhere at its depth, with one request at a time at each target.

    The fewest targets that keep the drafter fully loaded, `N_full` of equation (12), the most that are each as fast as
    without it, `N_max`, and the knee, 1 + Z / S.
    """

    drafter: str
    depth: int
    S_s: float
    Z_s: float
    N_full: int
    N_max: int
    knee: float


class Plan(msgspec.Struct, frozen=True):
    """The answer to a question.

    - `title`, `lines`: the question in a line, and the answer in a few.
    - `loads`: loads in words. `rows`: the simulated fleets of each, those that are best of their method first.
    - `goals`: of the chosen fleet of a single load. `rule`: where targets have one request each, and drafters apart.
    - `commands`: that start and measure the chosen fleet.
    - `scenarios`: the fleets of `best()` in its order, ready to run.
    - `unit`, `basis`: what costs are in, and what the step times rest on.
    - `notes`: on the scenario of the best fleet and on candidates that are left out, a line each.
    """

    title: str
    lines: tuple[str, ...]
    loads: tuple[str, ...]
    rows: tuple[Row, ...]
    goals: tuple[Reached, ...]
    rule: RuleOfThumb | None
    commands: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    unit: str
    basis: str
    notes: tuple[str, ...]

    @property
    def question(self) -> str:
        """The question without what it took by default."""
        return self.title.partition(" (defaults")[0]

    @property
    def chosen(self) -> Row:
        """The best fleet of the first load; the closest one where none meets the goals."""
        return self.rows[0]

    @property
    def scenario(self) -> Scenario | None:
        """The chosen fleet, ready to run; None with several loads, and where no fleet meets the goals."""
        return self.scenarios[0] if len(self.loads) == 1 and self.chosen.standing == "best" else None

    def best(self, load: str = "") -> list[Row]:
        """Return the best fleets of each method, the best of all first, under one load or all."""
        return [row for row in self.rows if row.is_best and load in ("", row.load)]


def make_rows(search: Simulations) -> Iterator[Row]:
    """Yield the simulated fleets under a load: the best of each method, the best first, then all others."""
    titles = {fleet.title for fleet in search.best}
    others = [made.fleet for title, made in search.estimates.items() if search.values[title] and title not in titles]
    yield from (_row(search, fleet, True) for fleet in search.best)
    yield from (_row(search, fleet, False) for fleet in sorted(others, key=search.rank))


def _row(search: Simulations, fleet: Deployment, is_best: bool) -> Row:
    load, sample = search.question.load, search.sample(fleet)
    metrics = {name: sample.interval(name) for name in sample.trials[0] if name not in ("overload", "token_s")}
    resolved = resolve(fleet.scenario(load, fleet.candidate.base.workload.requests))
    batching, prompt, answer = resolved.verifiers.batching, resolved.lengths.mean_prompt, resolved.lengths.mean_answer
    tokens_per_s = load.per_s * answer or metrics["throughput"].value
    per_s = load.per_s or (metrics["throughput"].value / answer if resolved.workload.conversations else 0.0)
    in_flight = (per_s * metrics["latency_s"].value or load.at_once(fleet.replicas)) / fleet.replicas
    room = batching.kv_blocks * batching.block_size
    limits = row_limits(resolved)
    limit, most = min(limits.items(), key=itemgetter(1))
    seated = min(in_flight, limits["max_num_seqs"], limits["max_num_batched_tokens"])
    return Row(
        load=load.text, fleet=fleet.title, method=fleet.candidate.name, target=fleet.candidate.target,
        targets=fleet.replicas, prefills=fleet.prefills, drafters=fleet.drafters, depth=fleet.depth,
        devices=fleet.devices, is_best=is_best, standing=search.standing(fleet), cost_per_hour=fleet.cost_per_hour,
        per_million=per_million_tokens(fleet.cost_per_hour, tokens_per_s), tokens_per_s=tokens_per_s,
        in_flight=in_flight, running=min(in_flight, most), limit=limit if most < in_flight else "",
        kv_share=held_tokens(resolved, seated, prompt + answer + batching.lookahead) / room if room else None,
        metrics=metrics,
        seeds=len(sample.trials),
    )  # fmt: skip


def goals_reached(goals: Sequence[Goal], row: Row, ranges: Ranges) -> Iterator[Reached]:
    """Say of each goal whether a fleet meets it."""
    for goal in goals:
        name, of = goal.metric, row.metrics[goal.metric]
        known = ranges.around(name, of)
        is_known = known.high < math.inf
        judged = (known.low, known.high) if is_known else (of.value, ranges.slow[name], ranges.poor[name])
        ends = sorted(map(goal.shown, judged if is_known else (of.value,)))
        reached = goal.shown(goal.limit), goal.shown(of.value), ends[0], ends[-1]
        yield Reached(goal.text, goal.unit, *reached, goal.state(*judged))


def on_each_link(search: Simulations) -> list[Deployment]:
    """Return the best fleets of the best drafter elsewhere and its target, the best one on each link."""
    apart = [fleet for fleet in search.best if fleet.drafters]
    places = [(fleet.candidate.place, fleet.candidate.target) for fleet in apart]
    return [fleet for fleet, place in zip(apart, places, strict=True) if place == places[0]]


def rules_of_thumb(search: Simulations) -> Iterator[RuleOfThumb]:
    """Yield the rule of thumb of the best drafter elsewhere on each link, where targets have one request each."""
    for fleet in on_each_link(search):
        base = fleet.candidate.base
        drafters = msgspec.structs.replace(base.drafters, depth=fleet.depth)
        inputs = star_inputs(resolve(msgspec.structs.replace(base, drafters=drafters)))
        S, Z, rate = inputs.service_s, inputs.return_s, inputs.standalone_tokens_per_s
        if S > 0 and base.verifiers.max_num_seqs == 1:
            most = N_max(S, Z, inputs.accepted_per_round + 1, rate) if math.isfinite(rate) else 0
            yield RuleOfThumb(fleet.candidate.name, fleet.depth, S, Z, N_full(S, Z), most, 1 + Z / S)
