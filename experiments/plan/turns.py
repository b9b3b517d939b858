"""What would turn the advice: other acceptance; for a drafter elsewhere the targets that share it, and the link."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import msgspec

from specfleet.experiments.plan.deployments import Deployment, Estimate, Question, estimates, mean_request_s
from specfleet.experiments.plan.depths import options_of
from specfleet.experiments.plan.ranges import accepting
from specfleet.experiments.plan.search import SAME_COST, Simulations, able
from specfleet.experiments.plan.serving import load_curve
from specfleet.experiments.plan.trials import simulated
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile

HALVINGS = 6  # of the span of acceptance
LATENCIES_S, LINK_HALVINGS = (1e-5, 1.0), 8  # of links, and of the decades of their span: to 5 %
SURE = 0.10  # share by which a simulation may be worse and still agree with equations
Turn = tuple[str, str]  # what happens, and where: a number that differs by load


def turns(by_load: Sequence[Simulations]) -> Iterator[str]:
    """Say what would turn the advice for each load."""
    for head, say in {"turns": by_acceptance, "a drafter elsewhere pays": by_link}.items():
        said = [(turn, search.question.load.text.partition(" ")[0]) for search in by_load if (turn := say(search))]
        runs = [(text, list(run)) for text, run in groupby(said, key=lambda pair: pair[0][0])]
        texts = [
            ("" if len(by_load) == 1 else f"at {', '.join(load for _, load in run)}: ") + text
            + ", ".join(at for (_, at), _ in run)
            for text, run in runs
        ]  # fmt: skip
        yield from [f"{head}: {'; '.join(texts)}"] if texts else []


def by_acceptance(search: Simulations) -> Turn | None:
    """Return which other method wins, or that a goal is missed, and from which acceptance on; None where none does.

    The drafts of the best fleet's drafter pass less often, wherever it runs; without one, the next fleet's more often.
    They are as long as is best then. Slow fleets of that drafter are left out.
    """
    best, others = search.best[0], [fleet for fleet in search.best[1:] if search.miss(fleet) <= 0]
    changed = next((fleet for fleet in (best, *others) if fleet.depth), None)
    if changed is None or changed.is_slow or search.winner is None:
        return None
    drafter = changed.candidate.drafted_by
    fleets = [one for one in (best, *others) if not (one.is_slow and one.candidate.drafted_by == drafter)]

    def first(by: float) -> Deployment | None:
        varied, more = copy.copy(search), -by if best.depth else by
        varied.values = {fleet.title: search.values[fleet.title][:1] for fleet in fleets}
        pairs = [(fleet, fleet) for fleet in fleets]  # as it may be, and as it is
        for fleet in (one for one in fleets if one.candidate.drafted_by == drafter):
            other = _at_best_depth(search, fleet, more)
            for tried in [fleet, *[other] * (other != fleet)]:
                pairs.append((tried, fleet))
                varied.values[tried.title] = [simulated(accepting(search.scenario(tried), more))]
        tried, fleet = min(pairs, key=lambda pair: varied.rank(pair[0]))
        return None if not fleets[1:] and varied.miss(tried) > 0 else fleet

    if first(1.0) == best:
        return None
    by = _edge(lambda by: first(by) != best, 0.0, 1.0, HALVINGS)
    rival = first(by)
    elsewhere = f" at {rival.candidate.target}" if rival and rival.candidate.target != best.candidate.target else ""
    wins = f"{rival.candidate.name}{elsewhere} wins" if rival else "a goal is missed"
    said = changed.candidate.name.partition(" on ")[0].partition("@")[0]
    return f"{wins} if acceptance of {said} is {'lower' if best.depth else 'higher'} by ", f"{by:.2f}"


def _at_best_depth(search: Simulations, fleet: Deployment, more: float) -> Deployment:
    """Return a fleet with the depth that equations say is best when its drafts pass so much more often."""
    options = [one.fleet for depth, one in options_of(search, fleet).items() if depth]
    curves = [load_curve(resolve(accepting(search.scenario(one), more)), one.sharing) for one in options]
    times_s = [mean_request_s(curve, search.question.load, fleet.replicas) for curve in curves]
    return options[times_s.index(min(times_s))]


def by_link(search: Simulations) -> Turn | None:
    """Return from how many targets on, and up to which link, a drafter elsewhere pays; None where none was asked for.

    Equations, by as much as simulations correct them here, find the last such link. A simulation on that, of a
    star also as planned, has the last word: beyond SURE the answer is no, or this link alone if simulations pay here.
    """
    question = search.question
    candidates = tuple(one for one in question.candidates if one.method == "apart")
    others = [fleet for fleet in search.best if not fleet.drafters]
    if not candidates or not others:
        return None
    known = list(search.estimates.values())
    kept = able(question, known)
    if not any(one.fleet.drafters for one in kept):  # equations cannot say which meet the goals: the simulation will
        question, kept = msgspec.structs.replace(question, goals=()), known
    score = partial(_score, question)
    rivals = [one for one in kept if not one.fleet.drafters]
    if search.miss(others[0]) <= 0:
        rivals.append(search.estimates[others[0].title])
    least = min(map(score, rivals), default=(math.inf, math.inf))
    apart = next((fleet for fleet in search.best if fleet.drafters), None)
    if apart and not question.load.per_s:  # by as much as equations are off for the two best
        expected = score(search.estimates[apart.title])[0] / score(search.estimates[others[0].title])[0]
        least = least[0] * expected / (1 + search.gap(apart, others[0]).value), least[1]

    def on_link(latency_s: float) -> list[Estimate]:
        moved = tuple(msgspec.structs.replace(one, base=_with_link(one.base, latency_s)) for one in candidates)
        try:
            made, _ = estimates(msgspec.structs.replace(question, candidates=moved))
        except InputError:  # none carries the load
            return []
        return sorted(able(question, made), key=score)

    def loses(decades: float) -> bool:
        return not any(score(one) <= least for one in on_link(10**decades)[:1])

    shortest, longest = map(math.log10, LATENCIES_S)
    never = loses(shortest)
    step = (longest - shortest) / 2**LINK_HALVINGS
    edge = shortest if never else _edge(loses, shortest, longest, LINK_HALVINGS) - step  # the last that does not lose
    at_edge = on_link(10**edge)
    if not at_edge:
        return "never", ""
    tried = [search.estimates[title].fleet for title, values in search.values.items() if values]
    here = [fleet.sharing for fleet in tried if fleet.drafters and _excess(search, fleet, others[0]) <= 0]
    paying = here or [one.fleet.sharing for one in (*kept, *at_edge) if one.fleet.drafters and score(one) <= least]
    few = f"from {min(paying)} target{'s' * (min(paying) > 1)} a drafter on, " if paying else ""
    says = "never, even on a link of 0 ms" if never else f"{'' if here else few}up to a link of {1e3 * 10**edge:.2g} ms"
    best = [one.fleet for one in at_edge if apart and one.fleet.title == apart.title]
    likely = [*best, at_edge[0].fleet][: 1 if apart and apart.is_slow else 2]
    checked = [(fleet, *_checked(search, fleet, others[0])) for fleet in likely]
    fleet, standing, excess = min(checked, key=itemgetter(2))
    name = f" with {fleet.candidate.place}" if "@" in fleet.candidate.place else ""
    agrees = not here if never else excess <= SURE
    if agrees:
        said = f"{few if here else ''}{says} (equations);"
    else:
        said = f"{few}on this link; by equations {says};" if here else f"no; by equations {says}, but"
    return f"against {others[0].candidate.name}: {said} a simulation on that link{name}: ", standing


def _checked(search: Simulations, fleet: Deployment, other: Deployment) -> tuple[str, float]:
    """Simulate a fleet once, and return what it is beside the best one without drafters elsewhere, and its excess."""
    varied = copy.copy(search)
    varied.values, varied.best = {other.title: search.values[other.title][:1], fleet.title: []}, [other]
    varied.values[fleet.title].append(simulated(varied.scenario(fleet)))
    return varied.standing(fleet), _excess(varied, fleet, other)


def _excess(search: Simulations, fleet: Deployment, other: Deployment) -> float:
    """By which share a fleet is dearer an hour, where that counts and differs, or else slower or its tokens dearer."""
    dearer = fleet.cost_per_hour / other.cost_per_hour - 1 if search.question.aim == "hour" else 0.0
    if search.miss(fleet) > 0:
        return math.inf
    return dearer if abs(dearer) > SAME_COST else search.gap(fleet, other).value


def _with_link(base: Scenario, latency_s: float) -> Scenario:
    assert isinstance(base.profile, HardwareProfile)
    link = msgspec.structs.replace(base.link or base.profile.link, latency_s=latency_s)
    return msgspec.structs.replace(base, link=link)


def _score(question: Question, one: Estimate) -> tuple[float, float]:
    """What is to be small by equations; of an hour's cost under arrivals, then time."""
    if question.aim == "hour" and question.load.per_s:
        return (round(one.fleet.cost_per_hour, 9) if one.may_win else math.inf), one.request_s
    return (one.request_s if question.aim == "time" else one.per_million if one.may_win else math.inf), 0.0


def _edge(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """Return the first number, by halving, from which on something holds, as it does at `high`."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
