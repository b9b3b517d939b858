"""From options to a question for each load, and from their answers to a plan."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from specfleet.experiments.jobs import read_shard
from specfleet.experiments.notes import notes_of
from specfleet.experiments.plan.answer import Plan, goals_reached, make_rows, rules_of_thumb
from specfleet.experiments.plan.candidates import Asked, Candidate, make_candidates
from specfleet.experiments.plan.commands import bench_command, server_commands
from specfleet.experiments.plan.deployments import LARGE, Deployment, Load, Question, ramp_requests, requests_for
from specfleet.experiments.plan.depths import FACTORS, MAX_IN_FLIGHT, speculate
from specfleet.experiments.plan.goals import in_words, read_goals
from specfleet.experiments.plan.lines import lines_of, precision_of
from specfleet.experiments.plan.loads import lines_by_load
from specfleet.experiments.plan.ranges import ranges_of
from specfleet.experiments.plan.search import Simulations, find
from specfleet.experiments.plan.texts import read_budget, read_in_flight, read_rates
from specfleet.experiments.sweep.sweep import Vary, vary_of
from specfleet.fleet.acceptance.models import PerPosition, rate_of_mean
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_toml
from specfleet.fleet.scenario.arrivals import Gamma, Trace
from specfleet.fleet.scenario.changes import Changes, apply_changes, flat
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.reading import Given, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.shared import SharedPrompts
from specfleet.fleet.scenario.workload import ids_in, known_share, mean_lengths, with_arrivals
from specfleet.fleet.scenario.writing import changed
from specfleet.fleet.times.labels import basis_of
from specfleet.fleet.times.profile import HardwareProfile, Server

FITTED = "{} as imported, estimated times: {}, which other ways to draft share (assumed)"
DEEPER = "drafts deeper than recorded: acceptance goes on at the constant rate of the same mean (extrapolated)"
MOST = int(MAX_IN_FLIGHT / FACTORS[0])  # requests in flight
ROWS = requests_for(MOST)  # of a file of lengths, at most: as many as requests of a simulation
BURSTS = "burstiness: the equations that choose what is simulated know the mean rate alone; simulations decide"
RAMP = (
    "conversations: at {} all turns arrive at their rate after a fifth of {:,} requests; simulations end with {:,}, "
    "so fewer arrive there than planned"
)
REPLACED = "workload.streams = {} of the scenario: the plan's load replaces it"
TURNS = "conversations: arrivals are those of requests, {:.3g} in each; requests in flight are users, who may think"
LIMIT, PREFIXES = "verifiers.max_num_seqs", "verifiers.prefix_cache"
COUNTS = ("drafters.count", "verifiers.count")
LENGTHS = ("workload.prompt_tokens", "workload.new_tokens")
DEPTH, ALLOCATE, PLACE = "drafters.depth", "verifiers.allocate", "drafters.place"
STATIONS = {  # of a scenario's keys those that a plan cannot keep, and why
    "device": "a plan places drafters and targets itself", "profile": "a plan knows one profile",
    "tiers": "a plan knows like devices: sweep the mix, or plan for each kind by itself",
}  # fmt: skip


def plan(
    scenario: Given | None = None,
    changes: Changes | None = None,
    *,
    target: str | Iterable[str] = (),
    draft: str | Iterable[str] = (),
    devices: str = "",
    link: str = "",
    acceptance: str | float | Iterable[str] = (),
    cached: float = 0.0,
    arrivals: str | float | Iterable[float] = (),
    in_flight: str | int | Iterable[int] = (),
    slo: str | Iterable[str] = (),
    least: str | Iterable[str] = (),
    cost: str | Iterable[str] = (),
    vary: Vary | str | None = None,
    jobs: int | None = None,
    done: Callable[[str], None] = lambda _what: None,
    out: str | Path | None = None,
    cluster: str = "",
    shard: str = "",
    **keys: Any,
) -> Plan:
    """Say which fleet to build for a load: method of speculation, targets, drafters, depth, and what that gives.

    `scenario`, `changes` and keywords as in `simulate`: lengths, policies, `[slo]`, `[cost]`. The others are the
    options of `specfleet plan`, which docs/plan.md explains: texts as there, one or several, and numbers. Without a
    load each target has one request after the other: a star. With several loads the answer compares methods by load.
    `jobs`: simulations at once, by default one a core. `done` is called after each simulation with the best fleet so
    far. `out`: a folder that keeps simulations, where a rerun finds them. `cluster`: as of `sweep`. `shard`: a share of
    the methods, such as "1/4", which the answer knows alone. Raises InputError, in one line, for what cannot be read,
    does not fit, or cannot be carried.

    >>> import specfleet
    >>> found = specfleet.plan("star", {"workload.new_tokens": 32}, vary=["verifiers.count=1:3", "drafters.depth=4"])
    >>> found.chosen.fleet
    '3 x target, a drafter apart, depth 4, 3 targets a drafter'
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs = {jobs}: needs a whole number from 1")
    base = scenario_of("star" if scenario is None else scenario, changes, **keys)
    targets, drafts, budget = _texts(target), _texts(draft), read_budget(devices) if devices else None
    base, server, imported = _imported(base)
    if server and not targets:
        targets, drafts = (server.target,), (*filter(None, [server.draft]), *drafts)
    if scenario is None and targets and base.acceptance == scenario_of("star").acceptance:
        base = msgspec.structs.replace(base, acceptance=None)  # a star's is an example
    if budget is not None and len(targets) != 1:
        raise InputError("--devices: plans for one target; give one --target MODEL")
    if drafts and not targets:
        raise InputError("--draft: give --target, too, MODEL@DEVICE, or a scenario that `import --target` wrote")
    content: dict[str, Any] = {}
    for part in (changes or (), keys):
        apply_changes(content, part, "plan")
    given = dict(flat(content))
    stated = frozenset({*given, *_stated(scenario)})
    base = _cached(base, cached, stated)
    rates, flights = read_rates(arrivals), read_in_flight(in_flight, MOST)
    if flights and (rates or any(key.startswith("workload.arrivals") for key in given)):
        raise InputError("--in-flight, --arrivals (workload.arrivals): give one of them")
    loads = _loads(base, rates, flights, budget is not None)
    if "," in link and len(loads) > 1:
        raise InputError(f"--link {link}: several links are compared under one load; give one of {len(loads)} loads")
    serving = bool(in_flight) or loads[0].per_s > 0
    wanted = {key: [given[key]] for key in (DEPTH, *COUNTS) if given.get(key) is not None}
    wanted |= vary_of(vary) if vary is not None else {}
    _check(base, given, wanted, bool(targets))
    goals = read_goals(base, _texts(slo), _texts(least))
    drafters, replicas = (tuple(wanted.pop(key, ())) for key in COUNTS)
    asked = Asked(
        scenario=_with_load(base, serving), server=server, settings=frozenset(given),
        targets=targets, drafts=drafts, link=link,
        acceptance=_texts(f"{acceptance:g}" if isinstance(acceptance, float) else acceptance), cost=_texts(cost),
        devices=budget, serving=serving, given=stated,
        costs_decide=any(Question((), load, goals, budget).aim != "time" for load in loads),
        depths=tuple(wanted.pop(DEPTH, ())), vary=wanted,
    )  # fmt: skip
    candidates, unit, noted = make_candidates(asked)
    notes = [*imported, *noted]
    candidates = _drafting_at(given.get(PLACE), candidates) if targets else candidates
    if serving and scenario is not None and base.verifiers.max_num_seqs == 1 and LIMIT not in given:
        notes.append(f"{LIMIT} = 1 of the scenario is a star's; servers have vLLM's limit; --set {LIMIT}=1 keeps it")
    notes += [REPLACED.format(base.workload.streams)] * bool(base.workload.streams)
    notes += [BURSTS] * (loads[0].burstiness != 1)
    talks = base.workload.conversations
    notes += [TURNS.format(talks.mean_turns())] if talks else []
    notes += [RAMP.format(load.text, more, LARGE) for load in loads if (more := ramp_requests(load, talks)) > LARGE]
    questions = [Question(tuple(candidates), load, goals, budget, replicas, drafters) for load in loads]
    workers, folder, share = cluster or jobs or os.cpu_count() or 1, Path(out) if out else None, read_shard(shard, out)
    by_load, beyond = _within_capacity(questions, lambda question: find(question, workers, done, folder, share))
    loads = [search.question.load for search in by_load]
    notes = [*_shared_acceptance(candidates, by_load), *notes, *beyond]
    title = f"shard {shard} of the methods, {_title(asked, loads)}" if shard else _title(asked, loads)
    return _answer(title, by_load, unit, serving, notes)


def _imported(base: Scenario) -> tuple[Scenario, Server | None, list[str]]:
    """Return the scenario of a running server with acceptance of deeper drafts, the server if any, and notes."""
    if not (server := getattr(base.profile, "server", None)):
        return base, None, []
    names = "drafts" if list(server.slower) == ["draft"] else "all steps"
    factors = " and ".join({f"{names} x {factor:.2f}" for factor in server.slower.values()}) or "not fitted"
    if isinstance(base.acceptance, PerPosition):  # up to twice as deep
        reached = base.acceptance.reached()
        further = reached[-1] * rate_of_mean(1 + float(reached.sum()), len(reached)) ** np.arange(1, len(reached) + 1)
        base = msgspec.structs.replace(base, acceptance=PerPosition(survival=(*reached.tolist(), *further.tolist())))
    return base, server, [FITTED.format(server.target, factors), *[DEEPER] * bool(server.draft)]


def _within_capacity(
    questions: Sequence[Question], search: Callable[[Question], Simulations]
) -> tuple[list[Simulations], list[str]]:
    """Return the searches of the loads that some fleet carries, and notes on the others; InputError if none does."""
    found, beyond = list[Simulations](), list[InputError]()
    for question in questions:
        try:
            found.append(search(question))
        except InputError as error:
            beyond.append(error)
    if not found:
        raise beyond[0]
    return found, [f"left out: {error}" for error in beyond]


def _answer(title: str, by_load: Sequence[Simulations], unit: str, serving: bool, said: Sequence[str]) -> Plan:
    """Return the plan of what was found for each load."""
    first = by_load[0]
    if len(by_load) == 1:  # before rows, of which these simulate more
        (depths, schedule), precision = speculate(first), [*precision_of(first)]
    tables = [tuple(make_rows(search)) for search in by_load]
    rows, best = tables[0], first.best[0]
    of_each = ((*search.notes, *notes_of(search.scenario(search.best[0]))) for search in by_load)
    notes = dict.fromkeys((*said, *chain.from_iterable(of_each)))
    ranges = [ranges_of(search, best) for search in by_load if len(by_load) == 1]
    reached = tuple(goal for at in ranges for goal in goals_reached(first.question.goals, rows[0], at))
    rules = [*rules_of_thumb(first)] if len(by_load) == 1 else []
    commands: tuple[str, ...] = ()
    chosen = [_priced(search, fleet, unit) for search in by_load for fleet in search.best]
    if len(by_load) > 1:
        both = list(zip(by_load, ([row for row in table if row.is_best] for table in tables), strict=True))
        lines = tuple(lines_by_load(both))
    else:
        methods = [row for row in rows if row.is_best]
        lines = tuple(lines_of(first, methods, ranges[0], reached, rules, unit, precision, depths))
        if first.winner is not None and serving and "@" in best.candidate.target:
            measure = bench_command(best, first.question.load, chosen[0])
            load = first.question.load.text + f" over {best.replicas} targets" * (best.replicas > 1)
            asked = best.candidate, best.depth, load, schedule
            commands = (*server_commands(*asked), measure)
    profile = best.candidate.base.profile
    assert isinstance(profile, HardwareProfile)
    return Plan(
        title=title, lines=tuple(map(in_words, lines)), loads=tuple(search.question.load.text for search in by_load),
        rows=tuple(row for table in tables for row in table), goals=reached, rule=next(iter(rules), None),
        commands=commands, scenarios=tuple(chosen), unit=unit, basis=basis_of(profile), notes=tuple(notes),
    )  # fmt: skip


def _shared_acceptance(candidates: Sequence[Candidate], by_load: Sequence[Simulations]) -> Iterator[str]:
    """Note that several drafters have one acceptance, of those that have room."""
    kept = {made.fleet.candidate.name for search in by_load for made in search.estimates.values()}
    drafters = list(dict.fromkeys(one.drafted_by for one in candidates if one.shared_with and one.name in kept))
    if len(drafters) > 1:
        yield f"acceptance: equal for {' and '.join(drafters)}, which differ; --acceptance {drafters[0]}=... states it"


def _drafting_at(place: str | None, candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates that draft at a place that is set, and no speculation, beside which they stand."""
    kept = [one for one in candidates if one.method == "none" or (one.method == "apart") == (place == "own")]
    if place and all(one.method == "none" for one in kept):
        raise InputError(f"plan: {PLACE} = {place}: no drafter is there; --draft MODEL@DEVICE is one elsewhere")
    return kept if place else candidates


def _priced(search: Simulations, fleet: Deployment, unit: str) -> Scenario:
    prices = Cost(fleet.candidate.target_per_hour, fleet.candidate.drafter_per_hour, unit)
    return msgspec.structs.replace(search.scenario(fleet), cost=prices)


def _loads(base: Scenario, rates: Sequence[float], flights: Sequence[int], in_all: bool) -> list[Load]:
    """Return the loads; `in_all`: whether requests in flight are those of the whole fleet, not of each target."""
    if flights:
        return [Load(in_flight=number) if in_all else Load(each=number) for number in sorted(set(flights))]
    arrivals = base.workload.arrivals
    if not rates and arrivals is not None:
        if isinstance(arrivals, Trace):
            raise InputError(
                f"scenario {base.name!r}: workload.arrivals: a plan draws its arrivals, poisson or gamma; give "
                "--arrivals RATE/s, which leaves the trace its lengths, or replay it with `specfleet simulate`"
            )
        talks = base.workload.conversations  # arrive in a scenario; its requests are the load of a plan
        rates = [arrivals.per_s * (talks.mean_turns() if talks else 1.0)]
    burstiness = arrivals.burstiness if isinstance(arrivals, Gamma) else 1.0
    if base.workload.streams and not rates:
        raise InputError(f"scenario {base.name!r}: workload.streams: give --in-flight; leave it out")
    if not rates and in_all:
        raise InputError("--devices: give the load of the fleet: either --arrivals 16/s, or --in-flight 64")
    return [Load(per_s=rate, burstiness=burstiness) for rate in sorted(set(rates))] or [Load(each=1)]


def _cached(base: Scenario, share: float, stated: Collection[str]) -> Scenario:
    """Return the scenario with a share of each prompt in prefix caches; InputError where it states anything else."""
    replace, workload, drafters = msgspec.structs.replace, base.workload, base.drafters
    if not share:
        return base
    if not 0 < share < 1:
        raise InputError(f"--cached {share:g}: needs a share of the prompts' tokens above 0 and below 1, such as 0.7")
    if workload.shared or workload.conversations or known_share(workload):
        raise InputError(f"--cached {share:g}: the prompts of {base.name!r} share texts already; leave one of both out")
    if PREFIXES in stated and not base.verifiers.prefix_cache:
        raise InputError(f"--cached {share:g}: {PREFIXES} = false keeps no prompts; leave one of both out")
    return replace(
        base, workload=replace(workload, shared=SharedPrompts(share=share)),
        drafters=replace(drafters, prefix_cache=drafters.place == "own" and drafters.count > 0),
        verifiers=replace(base.verifiers, prefix_cache=True),
    )  # fmt: skip


def _with_load(base: Scenario, serving: bool) -> Scenario:
    """Return the scenario with the lengths that are simulated, and without a load.

    Equally long answers of a server would stay in step; they vary by a tenth.
    """
    named = ids_in(base.workload) if base.verifiers.prefix_cache and known_share(base.workload) else 0
    workload = msgspec.structs.replace(with_arrivals(base.workload, None), requests=ROWS, id_tokens=named, streams=0)
    if serving and isinstance(workload.new_tokens, int) and not workload.lengths:
        workload = msgspec.structs.replace(workload, new_tokens=about(workload.new_tokens))
    return msgspec.structs.replace(base, workload=workload)


def about(tokens: int) -> Between:
    """Return lengths that vary by a tenth."""
    return Between(low=max(1, round(0.9 * tokens)), high=round(1.1 * tokens))


def _check(base: Scenario, given: Mapping[str, Any], wanted: Mapping[str, Sequence[Any]], is_placed: bool) -> None:
    """Raise InputError for what a plan cannot keep of a scenario."""
    if "workload.requests" in given:
        raise InputError("workload.requests: has no effect, since a plan has as many as it needs; leave it out")
    for key in COUNTS:
        if not all(isinstance(count, int) and count >= 1 for count in wanted.get(key, ())):
            raise InputError(f"plan: {key} = {list(wanted[key])}: a plan varies it from 1 on")
    if base.faults:
        raise InputError(f"scenario {base.name!r}: faults: a plan knows fleets without faults; leave it out")
    for side, (name, why) in product(("drafters", "verifiers"), STATIONS.items()):
        if getattr(getattr(base, side), name):
            raise InputError(f"scenario {base.name!r}: {side}.{name}: {why}; leave it out")
    if DEPTH in wanted and (base.verifiers.allocate is not None or any(key.startswith(ALLOCATE) for key in wanted)):
        raise InputError(f"plan: {DEPTH}: {ALLOCATE} has the speculation lengths; leave {DEPTH} out")
    if base.verifiers.verify is not None and is_placed:
        raise InputError(f"scenario {base.name!r}: verifiers.verify would replace the times of --target")


def _stated(scenario: Given | None) -> set[str]:
    """Return the keys that a scenario writes, but for a star's limit of one request."""
    content: Any = scenario or {}
    if isinstance(content, Scenario):
        content = {side: changed(getattr(content, side)) for side in ("drafters", "verifiers")}
    if isinstance(content, (str, Path)):
        content = read_toml(Path(content) if Path(content).exists() else shipped_files("scenarios")[str(content)])
    keys = dict(flat(content))
    return {key for key, value in keys.items() if (key, value) != (LIMIT, 1)}


def _texts(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _title(asked: Asked, loads: Sequence[Load]) -> str:
    """Return the question in a line."""
    prompt, answer = mean_lengths(asked.scenario.workload)
    budget = ", ".join(f"{count} x {kind}" for kind, count in (asked.devices or {}).items())
    what = " or ".join(asked.targets) or f"scenario {asked.scenario.name}"
    what = f"server {asked.scenario.name}, {what}" if asked.server else what
    on = f" on {budget}" if budget else ""
    at = ", ".join([*(load.text.partition(" ")[0] for load in loads[:-1]), loads[-1].text])
    about_answers = f"answers of {'about ' if asked.serving else ''}{answer:.0f}"
    usual = [key for key in LENGTHS if not any(name.startswith((key, "workload.lengths")) for name in asked.given)]
    has_defaults = usual and not asked.scenario.workload.lengths
    defaults = f" (defaults: --set {'=N --set '.join(usual)}=N)" if has_defaults else ""
    shared = asked.scenario.workload.shared
    turns = ", then a conversation's earlier turns" * bool(asked.scenario.workload.conversations)
    alike = f" ({shared.beginning(prompt) / prompt:.0%} a common beginning{turns})" if shared else ""
    at += f", link {asked.link}" * bool(asked.link)
    return f"{what}{on}, {at}: prompts of {prompt:.0f} tokens{alike}, {about_answers}{defaults}"
