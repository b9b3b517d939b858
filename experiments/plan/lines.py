"""The answer for one load in words: the best fleet, what it gives, what limits it, and how far to speculate there.

Limits are found twice: by equations, which name the resource, and by simulations of higher loads.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from specfleet.experiments.plan.answer import Reached, Row, RuleOfThumb
from specfleet.experiments.plan.deployments import MARGIN, Deployment, Load, mean_request_s, requests_for
from specfleet.experiments.plan.search import Simulations
from specfleet.experiments.plan.serving import load_curve
from specfleet.experiments.plan.trials import INDIFFERENT, Interval, Values, simulated
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.times.labels import ASSUMED_RANGE, basis_of, rests_on_assumed
from specfleet.fleet.times.profile import HardwareProfile

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the largest load that is carried, to say how deep to draft
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # the same of closed loops, of the planned load
HALVINGS = 4  # of the gap between a load that is carried and one that is not
MAX_LOAD = 16.0  # times the planned load
LOOK = 1500  # requests of a simulation of another load, at most
MAX_IN_FLIGHT = 2048  # requests at once that are simulated to see a limit
BUSY = 0.85  # the load from which a station is called the bottleneck
GIVEN = {"TPOT": "tpot_s", "TPOT P99": "tpot_p99_s", "TTFT": "ttft_s", "TTFT P90": "ttft_p90_s"}  # times that are said

STEP_ERROR = {
    "measured": 0.17, "estimated": 0.26, "stated": 0.26, "measured on an unsteady host": 0.50, "assumed": 0.50,
}  # fmt: skip
"""By which share step times are taken to be off, at 95 %, by what they rest on.

Measured: what blind predictions of a whole demo missed by at worst, on a quiet host. Estimated: of 107 step times
that others measured, our estimates miss 95 % by less (`bench/estimates.py`). Stated ones are taken for no better; for
the others the error is a guess.
"""
STEPS = ("draft", "draft_prefill", "verify", "verify_prefill", "decode")


def lines_of(
    search: Simulations, rows: Sequence[Row], goals: Sequence[Reached], rule: RuleOfThumb | None
) -> Iterator[str]:
    """Say the answer for one load; `rows`: the best fleet of each method."""
    yield from _fleet(search, rows)
    yield from _gives(search, rows[0], goals)
    if search.best[0].candidate.base.verifiers.max_num_seqs == 1:
        line = f"limit: {_bottleneck(search)}"
        if rule is not None:
            line += f"; {rule.drafter} has {rule.planned} targets, where N_full = {rule.N_full}, "
            line += f"the knee is at {rule.knee:.3g} and N_max = {rule.N_max}"
        yield line
    else:
        yield _limit(search)
        yield from _speculate(search)
    yield _risk(search)


def _fleet(search: Simulations, rows: Sequence[Row]) -> Iterator[str]:
    """Say the best fleet, and which ones are level with it."""
    question, best = search.question, search.best[0]
    idle = ", ".join(
        f"{unused} x {kind}"
        for kind, count in (question.devices or {}).items()
        if (unused := count - rows[0].devices.get(kind, 0))
    )
    if search.winner is None:
        yield f"fleet: none looked at meets the goals; closest: {best.title}, which {rows[0].standing}"
        return
    why = {"hour": "cheapest", "token": "cheapest for a token", "time": "fastest"}[question.aim]
    why += " that meets the goals" if question.goals else ""
    level = [other.fleet for other in rows[1:] if other.standing == "level"]
    also = f"; level within chance: {'; '.join(level)}" if level else ""
    yield f"fleet: {best.title}: {why}{f' ({idle} not needed)' if idle else ''}{also}"
    model, _, precision = best.candidate.target.partition("@")
    places = {estimate.fleet.candidate.target for estimate in search.estimates.values()}
    if precision.endswith(":fp8") and any(place.startswith(f"{model}@") and ":bf16" in place for place in places):
        yield f"precision: fp8 changes the answers of a bf16 model; --target {model}:bf16 leaves it out"


def _gives(search: Simulations, row: Row, goals: Sequence[Reached]) -> Iterator[str]:
    """Say what the best fleet gives, and at which concurrency its targets run."""
    times = [ranged(what, row.metrics[name], "ms", 1e3) for what, name in GIVEN.items() if name in row.metrics]
    rate = [] if search.question.load.per_s else [ranged("", row.metrics["throughput"], "tokens/s")]
    said = [f"{goal.text}: {goal.state}" for goal in goals]
    yield f"gives: {'; '.join([*rate, *times, *said])}"
    cache = "" if row.kv_share is None else f", in {row.kv_share:.0%} of its KV cache"
    yield f"runs: {row.in_flight:.3g} requests at once at each target{cache}"


def ranged(what: str, interval: Interval, unit: str, factor: float = 1.0) -> str:
    """Say a value and its interval, the value alone where they are the same in print."""
    numbers = (factor * number for number in (interval.value, interval.low, interval.high))
    value, low, high = (f"{number:.0f}" if number >= 1e4 else f"{number:.4g}" for number in numbers)
    return f"{what} {value} {unit}".strip() + (f" ({low} .. {high})" if low != high else "")


def _bottleneck(search: Simulations) -> str:
    """Which station of a star has the least time left; where none is busy, the longest part of a round."""
    best = search.best[0]
    mean = search.sample(best).mean
    if not best.drafters:
        return "the targets, which do all the work"
    drafter, target = mean("load"), mean("target_load")
    if max(drafter, target) >= BUSY:
        name, load = ("drafter", drafter) if drafter >= target else ("targets", target)
        return f"the {name}, busy {load:.0%} of the time"
    parts = {"drafting": mean("service_s"), "the link": mean("communication_s"), "verification": mean("verify_s"),
             "the wait for the drafter": mean("wait_s")}  # fmt: skip
    finite = {name: part for name, part in parts.items() if not math.isnan(part)}
    longest = max(finite, key=lambda name: finite[name])
    share = finite[longest] / sum(finite.values())
    return f"{longest}, {share:.0%} of a round; the drafter is busy {drafter:.0%}, targets {target:.0%} of the time"


def _limit(search: Simulations) -> str:
    """Say which resource of the fleet is exhausted first, at which load, and up to which load it meets the goals."""
    question, best = search.question, search.best[0]
    estimate = search.estimates[best.title]
    resource, rows = next(iter(estimate.curve.full.items()))
    rate = f"{best.replicas * estimate.curve.load_of(resource):.3g}/s, " if question.load.per_s else ""
    line = f"limit: {resource}: saturated from {rate}{rows:.0f} requests at once at each target on (equations)"
    if question.load.per_s:
        line += f"; a plan asks for {1 - MARGIN:.0%} of its {estimate.per_s:.3g}/s at most"
    if not best.drafters and best.replicas * rows <= MAX_IN_FLIGHT:
        once, twice = (_tokens_per_s(best, Load(0, round(more * rows) * best.replicas)) for more in (1, 2))
        _, answer = mean_lengths(best.candidate.base.workload)
        line += f"; simulated at that number: {once / answer:.3g}/s, at twice as many {twice / once - 1:+.0%}"
        if question.load.per_s and search.winner is not None and question.goals:
            line += f"; the goals hold {_edge(search)}"
    return line


def _tokens_per_s(fleet: Deployment, load: Load) -> float:
    in_flight = load.at_once(fleet.replicas)
    return simulated(fleet.scenario(load, max(min(requests_for(in_flight), LOOK), 3 * in_flight)))["throughput"]


def _missed(search: Simulations, values: Values) -> list[str]:
    """Return what one simulation misses."""
    return [goal.text for goal in search.question.goals if goal.miss(values[goal.metric]) > 0]


def _carries(fleet: Deployment, scenario: Scenario, load: Load) -> bool:
    """Whether a fleet with a scenario's step times carries a load, by equations.

    Simulations find an overload in full steps alone, which a full KV cache prevents.
    """
    return mean_request_s(load_curve(resolve(scenario), fleet.sharing), load, fleet.replicas) < math.inf


def _edge(search: Simulations) -> str:
    """Return in words up to which load the best fleet meets the goals in a simulation, by doubling and halving."""
    load, best = search.question.load, search.best[0]

    def at(factor: float) -> bool:
        scenario = search.scenario(best, load.times(factor), LOOK)
        if not _carries(best, scenario, load.times(factor)):
            return False
        values = simulated(scenario)
        return not values["overload"] and not _missed(search, values)

    low, high = 1.0, 2.0
    while high <= MAX_LOAD and at(high):
        low, high = high, 2 * high
    if high > MAX_LOAD:
        return f"at {load.times(low).text} and more"
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle) else (low, middle)
    return f"up to {load.times(low).text}"


def _speculate(search: Simulations) -> Iterator[str]:
    """Say how deep to draft at which load, on the devices of the best speculating fleet, and from where on not to."""
    fleet = next((made for made in search.best if made.depth), None)
    if fleet is None:
        return
    load, by_equations = search.question.load, bool(fleet.drafters)
    plain = search.estimates.get(f"{fleet.replicas} x {fleet.candidate.target}, no speculation")
    options = {
        estimate.fleet.depth: estimate
        for estimate in search.estimates.values()
        if msgspec.structs.replace(estimate.fleet, depth=0).title == msgspec.structs.replace(fleet, depth=0).title
    } | ({0: plain} if plain else {})
    loads = [at for at in map(load.times, FACTORS) if 0 < at.at_once(fleet.replicas) <= MAX_IN_FLIGHT]
    if load.per_s:
        most = max(estimate.per_s for estimate in options.values())
        loads = [load.times(share * (1 - MARGIN) * most / load.per_s) for share in SHARES]
    chosen: list[tuple[Load, int]] = []
    for at in loads:
        times_s = {depth: mean_request_s(estimate.curve, at, fleet.replicas) for depth, estimate in options.items()}
        if not by_equations:
            expected = min(times_s, key=lambda depth: times_s[depth])
            tried = {0, expected - 1, expected, expected + 1, fleet.depth} & options.keys()
            times_s = {depth: _simulated_s(search, options[depth].fleet, at) for depth in sorted(tried)}
        best_s = min(times_s.values())
        if not math.isinf(best_s):
            as_good = [depth for depth, time_s in times_s.items() if time_s <= (1 + INDIFFERENT) * best_s]
            chosen.append((at, min(as_good)))
    runs = [(depth, [at for at, _ in run]) for depth, run in groupby(chosen, key=lambda pair: pair[1])]
    spans = [f"{f'depth {depth}' if depth else 'off'} {_span([at.text for at in loads])}" for depth, loads in runs]
    never = "" if plain is None or any(not depth for depth, _ in runs) else "; it pays at each of these loads"
    how = "equations" if by_equations else "simulated at these loads"
    yield f"speculate: {fleet.candidate.name}: {', '.join(spans)}{never} ({how})"


def _span(loads: Sequence[str]) -> str:
    first = loads[0].partition("/s")[0].partition(" ")[0]
    return f"at {loads[0]}" if len(loads) == 1 else f"from {first} to {loads[-1]}"


def _simulated_s(search: Simulations, fleet: Deployment, load: Load) -> float:
    """Return the mean time of a request, in a closed loop that of a token of all; infinite if overloaded."""
    if not load.per_s:
        return 1 / _tokens_per_s(fleet, load)
    values = simulated(search.scenario(fleet, load, LOOK))
    return math.inf if values["overload"] else values["latency_s"]


def slowed(scenario: Scenario, factor: float, of_drafts: float = 1.0) -> Scenario:
    """Return the scenario with all steps `factor` times slower, and drafts `of_drafts` times that."""
    replace, profile, verifiers = msgspec.structs.replace, scenario.profile, scenario.verifiers
    assert isinstance(profile, HardwareProfile)
    times = {name: getattr(profile, name).slowed(factor) for name in STEPS}
    times["draft"] = times["draft"].slowed(of_drafts)
    if verifiers.verify is not None:
        verifiers = replace(verifiers, verify=verifiers.verify.slowed(factor))
    return replace(scenario, profile=replace(profile, **times), verifiers=verifiers)


def _risk(search: Simulations) -> str:
    """Say what the fleet gives where all steps take longer by the error of step times of their kind.

    An engine's versions launch drafting passes faster and slower: their spread adds to the error, as independent ones.
    """
    question, best = search.question, search.best[0]
    profile = best.candidate.base.profile
    assert isinstance(profile, HardwareProfile)
    basis = basis_of(profile)
    error, of_drafts = (
        ASSUMED_RANGE[1] - 1 if rests_on_assumed(profile, role) else STEP_ERROR[basis] for role in ("target", "drafter")
    )
    placed = best.candidate.placed if best.depth else None
    spread = placed.engine.spread if placed else 0.0
    of_drafts = math.hypot(of_drafts, spread)
    scenario = slowed(search.scenario(best), 1 + error, (1 + of_drafts) / (1 + error))
    values = simulated(scenario)
    missed = _missed(search, values)
    says = f", misses {', '.join(missed)}" if missed else ", meets the goals" if question.goals else ""
    if values["overload"] or not _carries(best, scenario, question.load):
        says = ", more than it carries"
    why = f"the error at 95 % of times that are {basis}"
    if rests_on_assumed(profile, "target"):
        low, high = ASSUMED_RANGE
        why = (
            f"for measured ones took {low:.2g} to {high:.2g} times those that were estimated with assumed efficiencies"
        )
    drafts = f", drafts {of_drafts:.0%} by the engine's versions, too" if spread else ""
    return (
        f"risk: with steps {error:.0%} slower, {why}{drafts}, TPOT is "
        f"{1e3 * values['tpot_s']:.4g} ms{says}; acceptance is taken as given"
    )
