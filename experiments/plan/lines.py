"""The answer for one load in words: the best fleet, what it gives, what limits it, and how far to speculate there."""

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from specfleet.experiments.plan.answer import Reached, Row, RuleOfThumb, goals_reached, on_each_link, ranged
from specfleet.experiments.plan.candidates import unstated
from specfleet.experiments.plan.deployments import MARGIN, Deployment, Load
from specfleet.experiments.plan.depths import LOOK, MAX_IN_FLIGHT, tokens_per_s
from specfleet.experiments.plan.ranges import Ranges, carries, errors_of, lower, missed, ranges_of, slowest
from specfleet.experiments.plan.search import SEEDS, SLOW_FEW, Simulations, able
from specfleet.experiments.plan.serving import FULL, TIME, WORTH
from specfleet.experiments.plan.trials import INDIFFERENT, Interval, Values, simulated
from specfleet.experiments.plan.turns import turns
from specfleet.fleet.hardware.profile import devices_in
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.shown import number

HALVINGS = 4  # of the gap between a load that is carried and one that is not
MAX_LOAD = 16.0  # times the planned load
BURSTS = 0.25  # burstiness of arrivals that come in bursts
BUSY = 0.85  # the load from which a station is called the bottleneck
MOST_SHARING = 16  # targets of one drafter that are simulated
HITS = "prefix_hit_share"
GIVEN = {"TPOT": "tpot_s", "TPOT P99": "tpot_p99_s", "TTFT": "ttft_s", "TTFT P90": "ttft_p90_s"}  # times that are said
OPEN = GIVEN | {"TTFT P99": "ttft_p99_s"}  # in a closed loop all prompts come at once in the beginning, which P99 is of


def lines_of(
    search: Simulations, rows: Sequence[Row], ranges: Ranges, goals: Sequence[Reached], rules: Sequence[RuleOfThumb],
    unit: str, precision: Sequence[str], depths: Sequence[str],
) -> Iterator[str]:  # fmt: skip
    """Say the answer for one load; `rows`: the best fleet of each method; `unit`: of costs; lines on the others."""
    yield from _fleet(search, rows)
    yield from precision
    yield from _gives(search, rows, ranges, goals, unit)
    is_star = search.best[0].candidate.base.verifiers.max_num_seqs == 1
    yield f"limit: {_bottleneck(search)}" if is_star else _limit(search)
    yield from carried(search, rows, rules)
    yield from depths
    yield from turns([search])
    yield from _risks(search, ranges, goals)


def _fleet(search: Simulations, rows: Sequence[Row]) -> Iterator[str]:
    """Say the best fleet, and which ones are level with it."""
    question, best = search.question, search.best[0]
    idle = ", ".join(
        f"{unused} x {kind}"
        for kind, count in (question.devices or {}).items()
        if (unused := count - rows[0].devices.get(kind, 0))
    )
    spare = f" ({idle} not needed)" if idle else alone(search)
    if search.winner is None:
        near = " (the smallest within 1%)" if best != search.fastest else ""
        yield f"fleet: none looked at meets the goals; closest{near}: {best.title}{spare}, which {rows[0].standing}"
        return
    aims = {"hour": "least cost an hour, then least time", "token": "least cost a token", "time": "least time"}
    why = aims[question.aim]
    why += ", of those that meet the goals" if question.goals else ""
    then = "the depth as now, within 2%" if best.depth == (best.candidate.present or None) else "shortest depth"
    also = "" if best == search.fastest else f"; of those within 1% the smallest: fewest devices, then {then}"
    level = [other.fleet for other in rows[1:] if other.standing == "level"]
    also += f"; level within chance: {'; '.join(level)}" if level else ""
    also += unstated([made.candidate for made in search.best if made == best or search.standing(made) == "level"])
    yield f"fleet: {best.title}{spare}: {why}{also}"
    devices, (kind, parallel) = rows[0].devices, devices_in(best.candidate.target)
    model, _, place = best.candidate.target.partition("@")
    if question.devices is None and place and parallel > 1 and list(devices) == [kind]:
        yield f"layout: stated; --devices {devices[kind]}x{kind} --target {model} compares other layouts and precisions"


def alone(search: Simulations) -> str:
    """Say what one target of the best fleet carries, where several are planned without a budget."""
    best, question = search.best[0], search.question
    fleet = msgspec.structs.replace(best, replicas=1, sharing=1)
    if not question.load.per_s or question.devices is not None or fleet.title not in search.estimates:
        return ""
    return f" ({fleet.at} alone: {_most(search, fleet, 0.5 / best.replicas)})" if best.replicas > 1 else ""


def precision_of(search: Simulations) -> Iterator[str]:
    """Simulate the first fleets in bf16 by equations, and say the best in bf16 beside one in fp8."""
    model, _, place = search.best[0].candidate.target.partition("@")
    every = [made for made in search.estimates.values() if made.fleet.candidate.target.startswith(f"{model}@")]
    every = [made for made in every if ":bf16" in made.fleet.candidate.target]
    if not (place.endswith(":fp8") and every):
        return
    carry = [made for made in every if made.may_win]
    search.run([made.fleet for made in able(search.question, carry) or carry][:SLOW_FEW], SEEDS[0])
    best = min((made.fleet for made in every if search.values[made.fleet.title]), key=search.rank, default=None)
    said = f"{best.title}, {search.standing(best)}" if best else "none carries the load"
    yield f"precision: fp8 changes the answers of a bf16 model; --target {model}:bf16 leaves it out; in bf16: {said}"


def _gives(
    search: Simulations, rows: Sequence[Row], ranges: Ranges, goals: Sequence[Reached], unit: str
) -> Iterator[str]:
    """Say what the best fleet gives, and at which concurrency its targets run."""
    row = rows[0]
    times = [
        ranged(what, ranges.around(name, row.metrics[name]), "ms", 1e3)
        for what, name in (OPEN if search.question.load.per_s else GIVEN).items()
        if name in row.metrics
    ]
    rate = [] if search.question.load.per_s else list(_rate(row, ranges, unit.partition(" (")[0]))
    said = [f"{row.metrics[HITS].value:.0%} of prompt tokens in the prefix cache"] if HITS in row.metrics else []
    said += [goal.line for goal in goals]
    plain = next((fleet for fleet in search.best if not fleet.depth), search.best[0])
    if goals and search.winner not in (None, plain) and search.miss(plain) <= 0:
        of_plain = next(other for other in rows if other.fleet == plain.title)
        states = {goal.state for goal in goals_reached(search.question.goals, of_plain, ranges_of(search, plain))}
        meets = f"meets {'it' if len(goals) == 1 else 'them'}, too{', at the edge' * (states != {'met'})}"
        said.append(f"no speculation {meets}: {search.standing(plain)}")
    yield f"gives: {'; '.join([*rate, *times, *said])}"
    share = "" if row.kv_share is None else "under 1%" if row.kv_share < 0.01 else f"{min(row.kv_share, 1):.0%}"
    cache = f", in {share} of its KV cache" if share else ""
    wait = f", {number(row.in_flight - row.running, 3)} wait ({row.limit})" if row.limit else ""
    yield f"runs: {number(row.running, 3)} request{'s' * (row.running != 1)} at once at each target{wait}{cache}"


def _rate(row: Row, ranges: Ranges, unit: str) -> Iterator[str]:
    """Say the tokens a second of a closed loop, and what a million of them costs."""
    rate = ranges.around("throughput", row.metrics["throughput"])
    yield ranged("", rate, "tokens/s of the whole fleet")
    high = row.per_million * rate.value / rate.low if rate.low else math.inf
    yield ranged("10^6 tokens cost", Interval(row.per_million, row.per_million * rate.value / rate.high, high), unit)


def _bottleneck(search: Simulations) -> str:
    """Which station of a star has the least time left."""
    best = search.best[0]
    mean = search.sample(best).mean
    if not best.drafters:
        return "the targets, which do all the work"
    drafter, target = mean("load"), mean("target_load")
    if max(drafter, target) >= BUSY:
        name, load = ("drafter", drafter) if drafter >= target else ("targets", target)
        return f"the {name}, busy {load:.0%} of the time"
    return f"no station: the drafter is busy {drafter:.0%}, targets {target:.0%} of the time"


def _limit(search: Simulations) -> str:
    """Say up to which load the fleet meets the goals, and which limit it reaches first, at which load."""
    question, best = search.question, search.best[0]
    estimate, workload, parts = search.estimates[best.title], best.candidate.base.workload, []
    resource, rows = next(iter(estimate.curve.full.items()))
    rate, source = best.replicas * estimate.curve.load_of(resource), "equations"
    parts += [_most(search, best)] * (question.load.per_s > 0)
    is_quick = not best.is_slow and best.replicas * rows <= MAX_IN_FLIGHT
    if is_quick and not workload.conversations:  # of which in flight are users
        (resource, rows, tokens), source = _first(best, estimate.curve.full), "simulated"
        rate = tokens / mean_lengths(workload)[1]
    more = "more add little (devices saturated)" if resource == TIME else f"more wait for {resource}"
    parts.append(f"beyond {number(rate, 3)} requests/s {more}, with {rows:.0f} at once at each target")
    return f"limit: {'; '.join(parts)} ({source})"


def _most(search: Simulations, fleet: Deployment, low: float = 1.0) -> str:
    """Say up to which load a fleet meets the goals, as it does at `low` times the planned one, or what it carries."""
    estimate = search.estimates[fleet.title]
    is_quick = not fleet.is_slow and fleet.replicas * next(iter(estimate.curve.full.values())) <= MAX_IN_FLIGHT
    if is_quick and search.winner is not None and search.question.goals:
        return f"goals hold {_edge(search, fleet, low)}"
    most = number((1 - MARGIN) * estimate.per_s, 3)
    return f"a plan asks for up to {most}/s, {1 - MARGIN:.0%} of its capacity"


def _first(best: Deployment, full: Mapping[str, float]) -> tuple[str, float, float]:
    """Simulate the first limit, its requests and tokens/s: of the devices' time, where twice as many add little."""
    (resource, rows), *others = full.items()
    rate, twice = (tokens_per_s(best, Load(0, round(more * rows) * best.replicas)) for more in (1, 2))
    if resource != TIME or twice < WORTH * rate or best.replicas * rows > MAX_IN_FLIGHT:
        return resource, rows, rate
    more = {TIME: 2 * rows} if 2 * rows < others[0][1] else {}
    return _first(best, more | dict(others))


def carried(search: Simulations, rows: Sequence[Row], rules: Sequence[RuleOfThumb] = ()) -> Iterator[str]:
    """Say how many targets the best drafter elsewhere carries on each link, and what its rounds consist of.

    That is of `rules` for one request at a time at each target; for several it is simulated.
    """
    load, by_drafter, fleets = search.question.load, {rule.drafter: rule for rule in rules}, on_each_link(search)
    for fleet in () if load.per_s else fleets:
        rule, each = by_drafter.get(fleet.candidate.name), round(load.at_once(fleet.replicas) / fleet.replicas)
        if rule:
            said = f"at depth {rule.depth} N_full = {rule.N_full}, the knee is at {rule.knee:.3g}, N_max = "
            said += f"{rule.N_max} (equations, if rounds wait for their draft: S = {1e3 * rule.S_s:.3g} ms, "
            said += f"Z = {1e3 * rule.Z_s:.3g} ms)"
        else:
            plain = (row for row in rows if not row.depth and row.target == fleet.candidate.target)
            said = _simulated(search, fleet, each, next((row.tokens_per_s / row.targets for row in plain), 0.0))
        in_turn = isinstance(fleet.candidate.base.drafters.group, One)
        served = "one request at a time (group one)" if in_turn else "all that wait at once (group batch)"
        yield f"carries: one {fleet.candidate.name}, drafting for {served}, {each} in flight at each target: {said}"
    if fleets:
        best, target = search.best[0], fleets[0].candidate.target
        here = [one for one in search.best if one == best or (not one.depth and one.candidate.target == target)]
        rounds = [_round(search, one) for one in (*fleets, *(one for one in here if not one.drafters))]
        yield f"rounds: {load.text}: {'; '.join(rounds)}"


def _simulated(search: Simulations, fleet: Deployment, each: int, plain: float) -> str:
    """Say what 1, 2, 4 .. targets of one drafter get, and without one (0: not known), and from how many it is full."""
    tokens, loads, most = dict[int, float](), dict[int, float](), max(min(MOST_SHARING, MAX_IN_FLIGHT // each), 1)
    for count in (2**power for power in range(most.bit_length())):
        alike = msgspec.structs.replace(fleet, replicas=count, sharing=count)
        values = simulated(search.scenario(alike, Load(each=each)))
        tokens[count], loads[count] = values["throughput"] / count, values["load"]
        if loads[count] >= FULL and tokens[count] <= (1 + INDIFFERENT) * plain:
            break
    rates = ", ".join(f"{rate:.0f} with {count}" for count, rate in tokens.items())
    said = f"tokens/s a target: {rates} target{'s' * (len(tokens) > 1)}"
    if plain:
        paying = max((count for count in tokens if tokens[count] > (1 + INDIFFERENT) * plain), default=0)
        said += f", {plain:.0f} without speculation: {f'faster with up to {paying}' if paying else 'never faster'}"
    full = next((f"always busy from {count} on" for count in loads if loads[count] >= FULL), "")
    said += f"; the drafter is {full or f'busy {max(loads.values()):.0%} of the time at most'}"
    return f"{said} (simulated, depth {fleet.depth}, {fleet.late} late drafts)"


def _round(search: Simulations, fleet: Deployment) -> str:
    """Say what a token takes, and with a drafter elsewhere what a round does."""
    mean, named = search.sample(fleet).mean, fleet.candidate.name
    round_s, tpot_s = mean("round_s"), mean("tpot_s")
    if not fleet.drafters:
        return f"{named} {1e3 * tpot_s:.3g} ms a token"
    named += f", {fleet.sharing} target{'s' * (fleet.sharing > 1)} a drafter"
    if math.isnan(mean("communication_s")):
        return f"no draft comes in time with {named}"
    parts = {"drafting": mean("service_s"), "waiting for the drafter": mean("wait_s"), "link": mean("communication_s")}
    at_target_s = round_s - sum(parts.values())
    step_s = min(mean("verify_s"), at_target_s)  # late drafts have none
    parts |= {"waiting for the target": at_target_s - step_s, "the target's step": step_s}
    said = ", ".join(f"{name} {1e3 * part:.3g}" for name, part in parts.items() if part > INDIFFERENT * round_s)
    if fleet.late == "decode":
        lost = 1 - mean("rounds_per_s_per_target") * fleet.replicas / mean("rounds_per_s")
        decoded = round_s / tpot_s - (1 - lost) * mean("mean_acceptance_length")
        said += f"; {decoded:.3g} of the tokens decoded while the draft was late; {lost:.0%} of drafts never verified"
    tokens = f"{1e3 * round_s:.3g} ms for {round_s / tpot_s:.3g} tokens = {1e3 * tpot_s:.3g} ms a token"
    return f"{named}: {tokens} ({said})"


def _edge(search: Simulations, fleet: Deployment, low: float) -> str:
    """Return in words up to which load a fleet meets the goals in a simulation, by doubling and halving."""
    load = search.question.load

    def at(factor: float) -> bool:
        scenario = search.scenario(fleet, load.times(factor), LOOK)
        if not carries(fleet, scenario, load.times(factor)):
            return False
        values = simulated(scenario)
        return not values["overload"] and not missed(search, values)

    high = 2 * low
    while high <= MAX_LOAD and at(high):
        low, high = high, 2 * high
    if high > MAX_LOAD:
        return f"at {load.per_s * low:.3g}/s and more"
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle) else (low, middle)
    return f"up to {load.per_s * low:.3g}/s"


def _risks(search: Simulations, ranges: Ranges, goals: Sequence[Reached]) -> Iterator[str]:
    """Say what ranges rest on, what the fleet misses at their ends, and what it gives where arrivals come in bursts."""
    question, best = search.question, search.best[0]
    errors, (_, steps, of_drafts) = errors_of(best.candidate), slowest(best, search.scenario(best))
    by = f"{of_drafts:.0%}" if of_drafts < 1 else f"{1 + of_drafts:.2g} times as slow"
    drafts = f" and drafts {by}, or acceptance is {lower(best)[1]}" if best.depth else ""
    said = _outcome(search, [goal.text for goal in goals if goal.state != "met"], ranges.slow, ranges.poor)
    said = f"{said or 'the worse ends of the ranges above'}{_against_plain(search, ranges)}"
    yield f"risk: if steps are {steps:.0%} slower ({errors.of}){drafts}: {said}"
    if question.load.per_s and question.load.burstiness > BURSTS:
        bursts = msgspec.structs.replace(question.load, burstiness=BURSTS)
        values = simulated(search.scenario(best, bursts))
        times = [f"{what} {1e3 * values[name]:.4g} ms" for what, name in OPEN.items() if name in values]
        said = filter(None, (", ".join(times), _outcome(search, missed(search, values), values)))
        yield f"risk: in bursts (burstiness {BURSTS:g}): {'; '.join(said)}"


def _against_plain(search: Simulations, ranges: Ranges) -> str:
    """Say by how much no speculation, with steps as slow, is worse in a closed loop at the worse ends."""
    best, aim = search.best[0], search.question.aim
    plain = next((fleet for fleet in search.best if not fleet.depth), best)
    if plain == best or search.question.load.per_s:
        return ""
    slow, cost = simulated(slowest(plain, search.scenario(plain))[0]), plain.cost_per_hour / best.cost_per_hour
    ends = (slow, ranges.slow), (search.values[plain.title][0], ranges.poor)
    gain = min(theirs["token_s"] / ours["token_s"] for theirs, ours in ends) * (1.0 if aim == "time" else cost) - 1
    worse = f"{gain:.0%} {'longer' if aim == 'time' else 'dearer'} a token"
    return f"; there no speculation is {worse}" if gain > INDIFFERENT else "; not sure: there drafts gain nothing"


def _outcome(search: Simulations, lost: Sequence[str], *ends: Values) -> str:
    """Say whether the goals hold at all of these ends, if there are some; `lost`: those that do not."""
    if any(values["overload"] for values in ends):
        return "more than it carries"
    return f"misses {', '.join(lost)}" if lost else "meets the goals" * bool(search.question.goals)
