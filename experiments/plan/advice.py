"""The answer for a budget in words: the best fleet, what limits it and at which load, and how far to speculate there.

Limits are found twice: by equations, which name the resource, and by simulations of higher loads.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from specfleet.experiments.notes import notes_of
from specfleet.experiments.plan.budget import Deployment, FleetQuestion, Load, budget_of, enough_for, mean_request_s
from specfleet.experiments.plan.candidates import Asked
from specfleet.experiments.plan.commands import bench_command, serve_command, sglang_command
from specfleet.experiments.plan.doubt import STEP_ERROR, STEPS, slowed
from specfleet.experiments.plan.fleets import Simulations, find
from specfleet.experiments.plan.goals import Goal, goals_of
from specfleet.experiments.plan.methods import about
from specfleet.experiments.plan.prices import prices_of
from specfleet.experiments.plan.serving import load_curve
from specfleet.experiments.plan.trials import INDIFFERENT, Interval, Values, simulated
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.cost import Cost, per_million_tokens
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, Workload
from specfleet.fleet.scenario.workload import mean_lengths, with_arrivals
from specfleet.fleet.times.labels import basis_of
from specfleet.fleet.times.profile import HardwareProfile

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the largest load that is carried, to say how deep to draft
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # the same of closed loops, of the planned load
HALVINGS = 4  # of the gap between a load that is carried and one that is not
MAX_LOAD = 16.0  # times the planned load
LOOK = 1500  # requests of a simulation of another load, at most
MAX_IN_FLIGHT = 2048  # requests at once that are simulated to see a limit
ROWS = enough_for(MAX_IN_FLIGHT / FACTORS[0])  # of a file of lengths, at most: as many as requests of a simulation
GIVEN = {"TPOT": "tpot_s", "TPOT P99": "tpot_p99_s", "TTFT": "ttft_s", "TTFT P90": "ttft_p90_s"}  # times that are said


class FleetRow(msgspec.Struct, frozen=True):
    """The best fleet of a method.

    - `targets`: their number, devices and precision. `metrics`: each with the interval of one more run.
    - `in_flight`: requests in flight at a target, on average.
    - `standing`: best, level, by how much it is dearer or slower, or by how much it misses a goal.
    """

    method: str
    fleet: str
    targets: str
    devices: dict[str, int]
    depth: int
    cost_per_hour: float
    per_million: float
    in_flight: float
    metrics: dict[str, Interval]
    standing: str


class FleetPlan(msgspec.Struct, frozen=True):
    """The answer: lines, a row for each method, commands that start and measure the chosen fleet, and its scenario.

    - `notes`: on the scenario of the best fleet, a line each.
    """

    title: str
    lines: tuple[str, ...]
    rows: tuple[FleetRow, ...]
    commands: tuple[str, ...]
    unit: str
    scenario: Scenario | None
    notes: tuple[str, ...] = ()


def plan_devices(
    devices: str,
    target: str,
    drafts: Sequence[str] = (),
    *,
    acceptance: Sequence[str] = (),
    arrivals_per_s: float = 0.0,
    in_flight: int = 0,
    slo: Sequence[str] = (),
    least: Sequence[str] = (),
    scenario: Scenario = Scenario(workload=Workload(prompt_tokens=800, new_tokens=250)),  # noqa: B008
    link: str = "",
    cost: Sequence[str] = (),
    depth: int = 0,
    jobs: int = 1,
    done: Callable[[str], None] = lambda _what: None,
) -> FleetPlan:
    """Say what to build of a budget of devices: method, devices of a target, precision, targets, depth.

    - `devices`: `8xh100,4xl40s`. `target`: MODEL, MODEL:PRECISION, or MODEL@4xDEVICE:PRECISION for fixed devices.
    - `drafts`: heads, small models (on the targets' devices, and elsewhere on any of the budget), "lookup".
    - `arrivals_per_s` or `in_flight`: the load of the whole fleet. `scenario`: lengths of its requests, and `[slo]`.
    - `slo`, `least`: goals, as `tpot_p99=30ms`. With arrivals they make the cheapest fleet the best, not the fastest.
    - `acceptance`, `link`, `cost`, `depth`, `done`: as in `compare_methods`. `jobs`: simulations at once.

    Raises InputError, in one line, for what cannot be read, does not fit, or cannot be carried.

    >>> import specfleet
    >>> found = specfleet.plan_devices("2xh100", "llama-3.1-8b:bf16", in_flight=4)
    >>> found.rows[0].fleet
    '1 x llama-3.1-8b@2xh100:bf16, no speculation'
    """
    if (arrivals_per_s > 0) == (in_flight > 0):
        raise InputError("--devices: give the load of the fleet: either --arrivals 16/s, or --in-flight 64")
    if in_flight > (most := int(MAX_IN_FLIGHT / FACTORS[0])):
        raise InputError(f"--in-flight {in_flight}: simulated up to {most}; plan for a part of the devices and load")
    workload = msgspec.structs.replace(with_arrivals(scenario.workload, None), requests=ROWS)
    if isinstance(workload.new_tokens, int) and not workload.lengths:  # equally long answers would stay in step
        workload = msgspec.structs.replace(workload, new_tokens=about(workload.new_tokens))
    asked = Asked(target, tuple(drafts), tuple(acceptance), msgspec.structs.replace(scenario, workload=workload), link,
                  tuple(cost))  # fmt: skip
    load = Load(arrivals_per_s, in_flight)
    question = FleetQuestion(budget_of(devices), asked, load, goals_of(scenario, slo, least), depth)
    found = find(question, jobs, done)
    prompt, answer = mean_lengths(workload)
    budget = ", ".join(f"{count} x {kind}" for kind, count in question.devices.items())
    title = (
        f"{question.asked.target} on {budget}, {question.load.text}: prompts of {prompt:.0f} tokens, answers of "
        f"about {answer:.0f}"
    )
    _, unit = prices_of(question.asked.cost, [f"@{kind}" for kind in question.devices])
    best = found.best[0]
    table = tuple(_row(found, one) for one in found.best)
    commands: tuple[str, ...] = ()
    chosen: Scenario | None = None
    if found.winner is not None:
        prices = Cost(best.candidate.target_per_hour, best.candidate.drafter_per_hour, unit)
        chosen = msgspec.structs.replace(found.scenario(best), cost=prices)
        # max_num_seqs: the simulated limit, and in a closed loop the requests in flight at a target
        rows = math.ceil(load.in_flight / best.replicas) or best.candidate.base.verifiers.max_num_seqs
        server = (best.candidate, best.depth, rows)
        measure = bench_command(best, load, chosen)
        commands = tuple(dict.fromkeys((serve_command(*server), sglang_command(*server), measure)))
    lines = (*_answer(found, table), *_limit(found), *_speculate(found), *_risk(found))
    return FleetPlan(title, lines, table, commands, unit, chosen, notes_of(found.scenario(best)))


def _row(found: Simulations, fleet: Deployment) -> FleetRow:
    load = found.question.load
    metrics = {name: found.interval(fleet, name) for name in found.trials.values[fleet.title][0]}
    _, answer = mean_lengths(fleet.candidate.base.workload)
    tokens_per_s = load.per_s * answer or metrics["throughput"].value
    in_flight = (load.per_s * metrics["latency_s"].value or load.in_flight) / fleet.replicas
    place = fleet.candidate.target.rpartition("@")[2]
    return FleetRow(
        method=fleet.candidate.name, fleet=fleet.title, targets=f"{fleet.replicas} x {place}",
        devices=fleet.devices, depth=fleet.depth, cost_per_hour=fleet.cost_per_hour,
        per_million=per_million_tokens(fleet.cost_per_hour, tokens_per_s), in_flight=in_flight, metrics=metrics,
        standing=_standing(found, fleet),
    )  # fmt: skip


def _standing(found: Simulations, fleet: Deployment) -> str:
    question, best, miss = found.question, found.best[0], found.miss(fleet)
    if miss == math.inf:
        return "cannot carry the load"
    if miss > 0:
        sample = found.sample(fleet)
        missed = max(question.goals, key=lambda goal: goal.miss(sample.mean(goal.metric)))
        return f"misses {missed.text} by {miss:.0%}"
    if fleet is best:
        return "best"
    if question.by_cost and fleet.cost_per_hour > best.cost_per_hour:
        return f"costs {fleet.cost_per_hour / best.cost_per_hour - 1:+.0%}"
    gap = found.gap(fleet, best)
    return "level" if gap.value < INDIFFERENT or gap.low <= 0 else f"{gap.value:+.0%} time"


def _answer(found: Simulations, rows: Sequence[FleetRow]) -> Iterator[str]:
    """Say the best fleet, what it gives, and at which concurrency its targets run."""
    question, best, row = found.question, found.best[0], rows[0]
    unused = {kind: count - row.devices.get(kind, 0) for kind, count in question.devices.items()}
    idle = ", ".join(f"{count} x {kind}" for kind, count in unused.items() if count)
    why = "cheapest that meets the goals" if question.by_cost else "fastest"
    level = [other.fleet for other in rows[1:] if other.standing == "level"]
    also = f"; level within chance: {'; '.join(level)}" if level else ""
    if found.winner is None:
        yield f"fleet: none of the budget meets the goals; closest: {best.title}, which {row.standing}"
    else:
        yield f"fleet: {best.title}: {why}{f' ({idle} not needed)' if idle else ''}{also}"
        model, asked, _ = question.asked.target.partition(":")
        has_bf16 = any(one.fleet.candidate.target.endswith(":bf16") for one in found.estimates.values())
        if not asked and has_bf16 and best.candidate.target.endswith(":fp8"):
            yield f"precision: fp8 changes the answers of a bf16 model; --target {model}:bf16 leaves it out"
    times = [_range(what, row.metrics[name], "ms", 1e3) for what, name in GIVEN.items() if name in row.metrics]
    rate = _range("", row.metrics["throughput"], "tokens/s") if question.load.in_flight else ""
    ranges = [(goal, row.metrics[goal.metric]) for goal in question.goals]
    goals = [f"{goal.text}: {goal.state(one.low, one.high)}" for goal, one in ranges]
    yield f"gives: {'; '.join([*filter(None, [rate]), *times, *goals])}"
    cache = row.in_flight / found.estimates[best.title].curve.full["the KV cache"]
    yield f"runs: {row.in_flight:.3g} requests at once at each target, in {cache:.0%} of its KV cache"


def _range(what: str, one: Interval, unit: str, factor: float = 1.0) -> str:
    numbers = (factor * each for each in (one.value, one.low, one.high))
    value, low, high = (f"{each:.0f}" if each >= 1e4 else f"{each:.4g}" for each in numbers)
    return f"{what} {value} {unit} ({low} .. {high})".strip()


def _limit(found: Simulations) -> Iterator[str]:
    """Say which resource of the fleet is exhausted first, at which load, and up to which load it meets the goals."""
    question, best = found.question, found.best[0]
    curve = found.estimates[best.title].curve
    resource, rows = next(iter(curve.full.items()))
    rate = f"{best.replicas * curve.load_of(resource):.3g}/s, " if question.load.per_s else ""
    line = f"limit: {resource}: saturated from {rate}{rows:.0f} requests at once at each target on (equations)"
    if not best.drafters and best.replicas * rows <= MAX_IN_FLIGHT:
        once, twice = (_tokens_per_s(best, Load(0, round(more * rows) * best.replicas)) for more in (1, 2))
        _, answer = mean_lengths(best.candidate.base.workload)
        line += f"; simulated at that number: {once / answer:.3g}/s, at twice as many {twice / once - 1:+.0%}"
        if question.load.per_s and found.winner is not None and question.goals:
            line += f"; the goals hold {_edge(found)}"
    yield line


def _tokens_per_s(fleet: Deployment, load: Load) -> float:
    return simulated(fleet.scenario(load, max(LOOK, enough_for(load.in_flight))))["throughput"]


def _missed(goals: Sequence[Goal], values: Values) -> list[str]:
    """Return what one simulation misses."""
    return [goal.text for goal in goals if goal.miss(values[goal.metric]) > 0]


def _carries(fleet: Deployment, scenario: Scenario, load: Load) -> bool:
    """Whether a fleet with a scenario's step times carries a load, by equations.

    Simulations find an overload in full steps alone, which a full KV cache prevents.
    """
    curve = load_curve(resolve(scenario), fleet.depth, fleet.sharing)
    return mean_request_s(curve, load, fleet.replicas) < math.inf


def _edge(found: Simulations) -> str:
    """Return in words up to which load the best fleet meets the goals in a simulation, by doubling and halving."""
    load, best = found.question.load, found.best[0]

    def at(factor: float) -> bool:
        scenario = found.scenario(best, load.times(factor), LOOK)
        if not _carries(best, scenario, load.times(factor)):
            return False
        values = simulated(scenario)
        return not values["overload"] and not _missed(found.question.goals, values)

    low, high = 1.0, 2.0
    while high <= MAX_LOAD and at(high):
        low, high = high, 2 * high
    if high > MAX_LOAD:
        return f"at {load.times(low).text} and more"
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle) else (low, middle)
    return f"up to {load.times(low).text}"


def _speculate(found: Simulations) -> Iterator[str]:
    """Say how deep to draft at which load, on the devices of the best speculating fleet, and from where on not to."""
    fleet = next((one for one in found.best if one.depth), None)
    if fleet is None:
        return
    load, by_equations = found.question.load, bool(fleet.drafters)
    plain = found.estimates.get(f"{fleet.replicas} x {fleet.candidate.target}, no speculation")
    options = {
        one.fleet.depth: one
        for one in found.estimates.values()
        if msgspec.structs.replace(one.fleet, depth=0).title == msgspec.structs.replace(fleet, depth=0).title
    } | ({0: plain} if plain else {})
    loads = [at for at in map(load.times, FACTORS) if 0 < at.in_flight <= MAX_IN_FLIGHT]
    if load.per_s:
        most = fleet.replicas * max(float(one.curve.per_s[-1]) for one in options.values())
        loads = [Load(share * most) for share in SHARES]
    chosen: list[tuple[Load, int]] = []
    for at in loads:
        times_s = {depth: mean_request_s(one.curve, at, fleet.replicas) for depth, one in options.items()}
        if not by_equations:
            expected = min(times_s, key=lambda depth: times_s[depth])
            tried = {0, expected - 1, expected, expected + 1, fleet.depth} & options.keys()
            times_s = {depth: _simulated_s(found, options[depth].fleet, at) for depth in sorted(tried)}
        best_s = min(times_s.values())
        if not math.isinf(best_s):
            as_good = [depth for depth, time_s in times_s.items() if time_s <= (1 + INDIFFERENT) * best_s]
            chosen.append((at, min(as_good)))
    runs = [(depth, [at for at, _ in run]) for depth, run in groupby(chosen, key=lambda one: one[1])]
    spans = [f"{f'depth {depth}' if depth else 'off'} {_span([at.text for at in loads])}" for depth, loads in runs]
    never = "" if plain is None or any(not depth for depth, _ in runs) else "; it pays at each of these loads"
    how = "equations" if by_equations else "simulated at these loads"
    yield f"speculate: {fleet.candidate.name}: {', '.join(spans)}{never} ({how})"


def _span(loads: Sequence[str]) -> str:
    first = loads[0].removesuffix("/s").removesuffix(" in flight")
    return f"at {loads[0]}" if len(loads) == 1 else f"from {first} to {loads[-1]}"


def _simulated_s(found: Simulations, fleet: Deployment, load: Load) -> float:
    """Return the mean time of a request, in a closed loop that of a token of all; infinite if overloaded."""
    if load.in_flight:
        return 1 / _tokens_per_s(fleet, load)
    values = simulated(found.scenario(fleet, load, LOOK))
    return math.inf if values["overload"] else values["latency_s"]


def _risk(found: Simulations) -> Iterator[str]:
    """Say what the fleet gives where all steps take longer by the error of step times of their kind."""
    question, best = found.question, found.best[0]
    scenario = found.scenario(best)
    assert isinstance(scenario.profile, HardwareProfile)
    error = STEP_ERROR[basis_of(scenario.profile)]
    for role in STEPS:
        scenario = slowed(scenario, role, 1 + error)
    values = simulated(scenario)
    missed = _missed(question.goals, values)
    says = f", misses {', '.join(missed)}" if missed else ", meets the goals" if question.goals else ""
    if values["overload"] or not _carries(best, scenario, question.load):
        says = ", more than it carries"
    yield (
        f"risk: with steps {error:.0%} slower, the error of {basis_of(scenario.profile)} times at 95 %, TPOT is "
        f"{1e3 * values['tpot_s']:.4g} ms{says}; acceptance is taken as given"
    )
