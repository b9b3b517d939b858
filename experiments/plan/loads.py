"""The answer for several loads in words: the best method by load, and from which load on speculation loses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from specfleet.experiments.plan.answer import Row, goals_reached
from specfleet.experiments.plan.candidates import unstated
from specfleet.experiments.plan.commands import make_schedule, server_commands
from specfleet.experiments.plan.deployments import Deployment
from specfleet.experiments.plan.depths import Depths, depths_at, falling, if_all_are_slow, schedule_lines, span
from specfleet.experiments.plan.lines import HITS, alone, carried
from specfleet.experiments.plan.ranges import Ranges, errors_of, lower, ranges_of
from specfleet.experiments.plan.search import Simulations
from specfleet.experiments.plan.turns import turns

Best = tuple[Simulations, list[Row]]
"""What was found for a load, and its rows: the best fleet of each method, the best of all first."""


def lines_by_load(by_load: Sequence[Best]) -> Iterator[str]:
    """Say the best fleet by load, what may turn that, how deep to draft, and how to start the servers."""
    runs = [list(run) for _, run in groupby(by_load, key=_best)]  # of neighbouring loads
    spans = [f"{span([rows[0].load for _, rows in run])}: {_best(run[0])}{_level(run)}" for run in runs]
    aim = {"hour": "cost an hour", "token": "cost a token", "time": "time"}[by_load[0][0].question.aim]
    winning = (of.candidate for search, _ in by_load for of in search.best if search.standing(of) in ("best", "level"))
    yield f"best: {'; '.join(spans)} (least {aim}){alone(by_load[-1][0])}{unstated(winning)}"
    ranges = [(rows[0], ranges_of(search, search.best[0])) for search, rows in by_load]
    yield f"ranges: {_ranges(by_load, ranges)}"
    if goals := by_load[0][0].question.goals:
        reached = [[(f"at {_short(row.load)}", of) for of in goals_reached(goals, row, at)] for row, at in ranges]
        states = ["; ".join(f"{at} {of.state}, {of.said}" for at, of in goal) for goal in zip(*reached, strict=True)]
        yield f"goals: {'; '.join(f'{goal.text}: {state}' for goal, state in zip(goals, states, strict=True))}"
    if hits := [f"{rows[0].metrics[HITS].value:.0%}" for _, rows in by_load if HITS in rows[0].metrics]:
        yield f"hits: {', '.join(hits)} of prompt tokens in the prefix cache with the best methods"
    (fleet, depths), schedule = _depths(by_load), None
    met = [run for run in runs if run[0][0].winner is not None]
    served = {_method(one): one[0] for run in met for one in run}
    if fleet is not None and depths:
        of_fleet = [search for search, _ in by_load if search.best[0].candidate == fleet.candidate]
        planned = {search.question.load: search.best[0].depth for search in of_fleet}
        said = [f"at {_short(at.load.text)}: {at.beside(planned.get(at.load))}" for at in depths]
        place = f" at {fleet.candidate.target}" * (len({one.target for one in by_load[0][0].question.candidates}) > 1)
        yield f"depths: {fleet.candidate.name}{place}: {'; '.join(said)}"
        searches = {search.question.load: search for search, _ in by_load}
        yield from if_all_are_slow(fleet, [(searches[at.load], at) for at in depths])
        if goals:  # they ask for the depths in the table
            depths = [at._replace(times={planned[at.load]: 1.0}) if at.load in planned else at for at in depths]
        depths.sort(key=lambda at: at.rows)  # more targets may have less each at more load
        schedule = make_schedule(fleet.candidate, falling(depths)) if served else None
        in_command = any(search.winner and not search.question.load.per_s for search in of_fleet)
        yield from schedule_lines(fleet, schedule, 0 if in_command else None)
    yield from (line for search, rows in by_load for line in carried(search, rows))
    yield from turns([search for search, _ in by_load])
    for method, search in served.items():
        at = ", ".join(span([rows[0].load for _, rows in run]) for run in met if _method(run[0]) == method)
        best = search.best[0]
        if "@" not in best.candidate.target:  # stations of a scenario: no model to serve
            return
        is_shown = fleet is not None and best.candidate == fleet.candidate and not search.question.load.per_s
        depth = max(deep for _, deep in falling(depths)) if is_shown and depths else best.depth
        asked = best.candidate, depth, at, schedule if is_shown else None
        yield f"serve at {at}: {server_commands(*asked)[0]}"


def _ranges(by_load: Sequence[Best], ranges: Sequence[tuple[Row, Ranges]]) -> str:
    """Say by which shares what the best fleets give may be off, load by load."""
    metrics = {"tokens/s": "throughput", "TPOT": "tpot_s", "TTFT": "ttft_s"}
    if by_load[0][0].question.load.per_s:
        del metrics["tokens/s"]
    said = [(_shares(row, at, metrics), _short(row.load)) for row, at in ranges]
    runs = [(text, span([load for _, load in run])) for text, run in groupby(said, key=lambda pair: pair[0])]
    texts = [f"{f'at {loads}: ' if len(runs) > 1 else ''}{text}" for text, loads in runs]
    less = {f"; acceptance {lower(search.best[0])[1]}" for search, _ in by_load if search.best[0].depth}
    of = dict.fromkeys(errors_of(search.best[0].candidate).of for search, _ in by_load)
    return f"{'; '.join(texts)} ({', then '.join(of)}{''.join(sorted(less))})"


def _shares(row: Row, ranges: Ranges, metrics: Mapping[str, str]) -> str:
    said = list[str]()
    for what, name in metrics.items():
        value, low, high = msgspec.structs.astuple(ranges.around(name, row.metrics[name]))
        why = "not measured" if name == "ttft_s" and ranges.errors.ttft[1] == math.inf else "over a factor of 2"
        ends = f"{f'{low / value - 1:+.0%}' if low < value else 'up'} to {high / value - 1:+.0%}"
        ends = ends if high < math.inf else f"not known ({why})"
        said.append(f"{what} {ends}")
    return ", ".join(said)


def _depths(by_load: Sequence[Best]) -> tuple[Deployment | None, list[Depths]]:
    """Return the best way to draft at most loads, and how deep it goes at each; nothing of slow simulations."""
    best = [(search, one) for search, _ in by_load for one in search.best]
    drafted = [one.candidate for search, one in best if one.depth and one == search.best[0]]
    drafted = drafted or [one.candidate for _, one in best if one.depth]
    found = [pair for pair in best if drafted and pair[1].candidate == max(drafted, key=drafted.count)]
    if not found or found[0][1].is_slow:
        return None, []
    known = [depths_at(search, one, search.question.load) for search, one in found]
    return found[0][1], [at for at in known if at is not None]


def _best(of_load: Best) -> str:
    return f"{'none meets the goals; closest: ' if of_load[0].winner is None else ''}{_method(of_load)}"


def _method(of_load: Best) -> str:
    """Name the best method, and its fleet where that differs by load."""
    search, (row, *_) = of_load
    if search.question.load.each and len({one.target for one in search.question.candidates}) == 1:
        return row.method
    return row.fleet if search.question.load.per_s else row.fleet.replace(f", depth {row.depth}", "")


def _short(load: str) -> str:
    return load.removesuffix(" at each target").partition(" (")[0]


def _level(run: Sequence[Best]) -> str:
    """Name the methods that are level with the best one at all of these loads."""
    level = [{row.method for row in rows if row.standing == "level"} for _, rows in run]
    also = sorted(set.intersection(*level))
    return f" (level with {', '.join(also)})" if also else ""
