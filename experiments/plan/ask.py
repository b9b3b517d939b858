"""From options to a question, and from a question to its plan."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from specfleet.experiments.notes import notes_of
from specfleet.experiments.plan.answer import Plan, Reached, approximation_of, goals_reached, rows_of, rule_of
from specfleet.experiments.plan.doubt import STEP_ERROR, Doubts, Range, carries, doubts_of, ranges_of
from specfleet.experiments.plan.goals import goals_of
from specfleet.experiments.plan.lines import lines_of
from specfleet.experiments.plan.places import Named, pairs_of, places_of
from specfleet.experiments.plan.question import ARRIVALS, DEPTH, REQUESTS_PER_TARGET, Question, check, fitting
from specfleet.experiments.plan.screen import screen
from specfleet.experiments.plan.search import search
from specfleet.experiments.sweep.sweep import Vary, vary_of
from specfleet.fleet.acceptance.models import Geometric, deepest
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.arrivals import Poisson
from specfleet.fleet.scenario.changes import Changes, apply_changes, flat
from specfleet.fleet.scenario.facts import accepts
from specfleet.fleet.scenario.reading import Given, scenario_of
from specfleet.fleet.scenario.scenario import Acceptance, Scenario, Verifiers
from specfleet.fleet.scenario.workload import mean_lengths, with_arrivals
from specfleet.fleet.times.labels import basis_of
from specfleet.fleet.times.profile import HardwareProfile

COUNTS = ("drafters.count", "verifiers.count")
DRAFTERS = {False: (1,), True: (1, 2, 3, 4)}  # M to try, where requests come by themselves and where not
TARGETS = 24  # N to try at most
DEPTHS = tuple(range(1, 13))


def plan(
    scenario: Given = "star",
    changes: Changes | None = None,
    *,
    target: str | Iterable[str] | None = None,
    draft: str | Iterable[str] | None = None,
    link_s: float | None = None,
    acceptance: float | None = None,
    arrivals_per_s: float | None = None,
    slo: str | Iterable[str] = (),
    least: str | Iterable[str] = (),
    cost: str | Iterable[str] = (),
    vary: Vary | None = None,
    apart: bool = False,
    jobs: int | None = None,
    step_error: float | None = None,
    done: Callable[[str], None] = lambda _what: None,
    **keys: Any,
) -> Plan:
    """Say how many drafters and targets to build, at which depth, and what that gives.

    `scenario`, `changes` and keywords as in `simulate`: the load, the link, the acceptance, the policies. The others
    are the options of `specfleet plan`, which docs/plan.md explains: texts as there, one or several, and numbers in
    seconds, per second, and shares. Without `target` and `draft` the scenario's profile says what steps take; without
    `arrivals_per_s` each target decodes one request after the other. Counts and a depth in `changes` are not searched.
    `jobs`: by default one a core. `done` is called with each simulated fleet. Raises InputError for what cannot be
    planned.

    >>> import specfleet
    >>> found = specfleet.plan("star", {"workload.new_tokens": 32}, vary=["verifiers.count=1:3", "drafters.depth=4"])
    >>> found.chosen.kind
    'drafters apart'
    """
    if (target is None) != (draft is None):
        raise InputError("plan: give target and draft, both as MODEL@DEVICE, or neither, and a profile")
    if step_error is not None and not 0 < step_error <= 1:
        raise InputError(f"step_error = {step_error:g}: needs a share above 0, up to 1; 20% is 0.2")
    base = scenario_of(scenario, changes, **keys)
    targets, drafts = (places_of(value, what) for value, what in ((target, "target"), (draft, "draft")))
    given = _leaves(changes or (), keys)
    if "workload.requests" in given:
        raise InputError("workload.requests: has no effect, since a plan has as many as it needs; leave it out")
    base = _with_load(base, given, link_s, acceptance, arrivals_per_s)
    depths = _depths(base)
    wanted: dict[str, Sequence[Any]] = {}
    if base.verifiers.allocate is None:  # a rule of lengths has its own depths
        wanted[DEPTH] = depths
    wanted |= {key: [given[key]] for key in (*wanted, *COUNTS) if given.get(key) is not None}
    wanted |= vary_of(vary) if vary is not None else {}
    usual = (DRAFTERS[base.workload.arrivals is not None], range(1, TARGETS + 1))
    M, N = (tuple(wanted.pop(key, values)) for key, values in zip(COUNTS, usual, strict=True))
    for name, counts in zip(COUNTS, (M, N), strict=True):
        if not all(isinstance(count, int) and count >= 1 for count in counts):
            raise InputError(f"plan: {name} = {list(counts)}: a plan varies it from 1 on")
    most = max(ARRIVALS, REQUESTS_PER_TARGET * max(N))  # requests of a simulation, and rows of a file of lengths
    base = scenario_of(base, {DEPTH: min(base.drafters.depth, depths[-1]), "workload.requests": most})
    question = Question(
        pairs_of(base, targets, drafts, _texts(cost)),
        M,
        N,
        {key: tuple(values) for key, values in wanted.items()},
        goals_of(base, _texts(slo), _texts(least)),
        _title(base, targets, drafts),
        apart,
    )
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs = {jobs}: needs a whole number from 1")
    return make_plan(question, jobs or os.cpu_count() or 1, step_error, done)


def make_plan(
    question: Question, jobs: int = 1, step_error: float | None = None, done: Callable[[str], None] = lambda _what: None
) -> Plan:
    """Answer a question, with `jobs` simulations at once; `done` is called with each simulated fleet.

    `step_error`: by which share a role's step times may be off, at 95 %; by default what profiles of that kind are.
    Raises InputError for a question that cannot be planned.
    """
    check(question)
    question, left_out = fitting(question)
    screened = screen(question)
    choice = search(question, screened, jobs, done)
    leader = choice.leader
    pair = question.pairs[0] if leader is None else question.pair(leader.shape)
    base = pair.base
    chosen = None if leader is None else replace(question.scenario(leader.shape), cost=pair.prices)
    assert isinstance(base.profile, HardwareProfile)
    basis = basis_of(base.profile)
    error = STEP_ERROR[basis] if step_error is None else step_error
    ranges: dict[str, Range] = {}
    goals: tuple[Reached, ...] = ()
    tried: Doubts = {}
    if leader is not None:
        doubts = doubts_of(question, leader.shape, error)
        choice.trials.run([one for own in doubts.values() for one in own], 1, jobs)
        tried = {role: [choice.values(leader.shape, one.name)[0] for one in own] for role, own in doubts.items()}
        for role, (_, slower, _) in tried.items() if question.arrivals_per_s else ():
            slower["overload"] = float(slower["overload"] or not carries(question, leader.shape, role, 1 + error))
        ranges = ranges_of(leader, tried)
        goals = goals_reached(question, ranges)
    notes = (note for one in (base, chosen) if one is not None for note in notes_of(one))
    simulations = sum(map(len, choice.trials.values.values()))
    counts = f"of {len(screened)} fleets by equations, {len(choice.entrants)} simulated in {simulations} runs"
    return Plan(
        question=question.title, chosen=None if leader is None else leader.shape,
        scenario=chosen, metrics=ranges, goals=goals,
        lines=lines_of(question, choice, leader, ranges, goals, tried, counts),
        rows=rows_of(question, choice, screened), level=tuple(one.title for one in choice.level),
        rule=None if leader is None else rule_of(question, leader.shape), unit=question.unit, basis=basis,
        step_error=error, screened=len(screened), simulations=simulations,
        approximation=approximation_of(question, choice, screened),
        notes=tuple(dict.fromkeys([*left_out, *notes])),
    )  # fmt: skip


def _texts(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _leaves(*changes: Changes) -> dict[str, Any]:
    """Return what changes say, by dotted key."""
    content: dict[str, Any] = {}
    for each in changes:
        apply_changes(content, each, "plan")
    return dict(flat(content))


def _with_load(
    base: Scenario, given: Collection[str], link_s: float | None, acceptance: float | None,
    arrivals_per_s: float | None,
) -> Scenario:  # fmt: skip
    """Return the scenario with what a question says of it by itself; keys that are `given` stay."""
    changes: dict[str, Any] = {}
    if link_s is not None:
        changes["link.latency_s"] = link_s
    if acceptance is not None:
        if not 0 < acceptance < 1:
            raise InputError(f"acceptance = {acceptance}: needs a probability between 0 and 1")
        changes["acceptance"] = Geometric(acceptance)
    if arrivals_per_s is not None:
        if not 0 < arrivals_per_s < 1e9:
            raise InputError(f"arrivals = {arrivals_per_s}: needs a number of requests a second, above 0")
        base = replace(base, workload=with_arrivals(base.workload, Poisson(arrivals_per_s)))
        # Requests share steps, as in every server with open arrivals.
        if isinstance(base.drafters.group, One) and not any(key.startswith("drafters.group") for key in given):
            changes["drafters.group"] = "batch"
        if base.verifiers.max_num_seqs == 1 and "verifiers.max_num_seqs" not in given:
            changes["verifiers.max_num_seqs"] = Verifiers().max_num_seqs
    return scenario_of(base, changes)


def _acceptance(base: Scenario) -> Acceptance | None:
    """Return the scenario's acceptance, else its profile's."""
    return base.acceptance or (base.profile.acceptance if isinstance(base.profile, HardwareProfile) else None)


def _depths(base: Scenario) -> Sequence[int]:
    """Return the depths to try, as far as the acceptance of drafts is known."""
    return [depth for depth in DEPTHS if depth <= deepest(_acceptance(base))]


def _title(base: Scenario, targets: Sequence[Named], drafts: Sequence[Named]) -> str:
    what = f"scenario {base.name}"
    if targets:
        drafting, verifying = (" or ".join(one.placed.named for one in places) for places in (drafts, targets))
        what = f"{drafting} drafts for {verifying}"
    arrivals, model = base.workload.arrivals, _acceptance(base)
    if not isinstance(arrivals, Poisson | None):
        return what  # refused by `check`
    prompt, answer = mean_lengths(base.workload)
    load = f"{arrivals.per_s:g} requests/s" if arrivals else "targets that decode all the time"
    lengths = f"prompts of {prompt:.0f} tokens, answers of {answer:.0f}"
    label, depth = "assumed" if base.acceptance else "of the profile", base.drafters.depth
    accepted = f", acceptance {label}: {accepts(model, depth)} at depth {depth}" if model else ""
    return f"{what}; {load}, {lengths}{accepted}"
