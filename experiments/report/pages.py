"""The page of results: of a plan, a run, a sweep or a demo; the answer, its figures, its tables."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import mul
from pathlib import Path

from specfleet.experiments.compare.compare import ComparedQuantity
from specfleet.experiments.console.headline import headline
from specfleet.experiments.console.printing import case_text
from specfleet.experiments.draw import plan_of, read_plan, timeline_of
from specfleet.experiments.plan.answer import Plan, Row
from specfleet.experiments.plan.goals import in_words
from specfleet.experiments.plan.lines import GIVEN
from specfleet.experiments.report import tables
from specfleet.experiments.report.page import Grid, ReportPage, html_of
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.figure import in_unit, sweep_figure, text_of
from specfleet.experiments.sweep.findings import findings
from specfleet.experiments.sweep.sweep import RECORD, read_sweep, shown, table
from specfleet.figures.style import Drawn, scale_of
from specfleet.figures.timeline import steps_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file
from specfleet.fleet.inputs.text import is_file
from specfleet.fleet.records.metrics.measure import assess, measure_targets
from specfleet.fleet.records.metrics.window import with_percentiles
from specfleet.fleet.records.run import Run, read_run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.shown import number
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.meaning.entries import axis_label

SHOWN = {f"{name}, ms": (metric, 1e3) for name, metric in GIVEN.items()}
"""Times of a fleet by their headings, and what they are multiplied by."""
MAX_LANES = 24  # of the first stations, in a figure of their steps
MAX_TARGETS, MAX_SENTENCES = 500, 8
DRAWN = ("throughput", "tpot_p99_s", "load")  # a figure each of a sweep, along its first key
TABLED = ("throughput", "tpot_p50_s", "tpot_p99_s", "ttft_p99_s", "wait_p99_s", "load", "mean_acceptance_length")
PLAN = "plan.json"
ALLOWED = "allowed: a run (Parquet), the folder of a sweep (sweep.json) or of a plan (plan.json)"
CHANGES = "; fp8 changes the answers of a model in bf16"


def answers(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return the head and the text of each line of an answer."""
    return [(head, text) for head, _, text in (line.partition(": ") for line in lines)]


def sentences(answer: Sequence[tuple[str, str]], count: int = 3) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the first lines of an answer as sentences, and the others."""
    return tuple(f"{head[:1].upper()}{head[1:]}: {text}." for head, text in answer[:count]), tuple(answer[count:])


def plan_page(plan: Plan) -> ReportPage:
    """Return the page of a plan."""
    grids = [_fleets(plan)]
    if plan.scenario is not None:
        grids += tables.scenario_grids(resolve(plan.scenario), plan.scenario, "The chosen fleet.")
    facts = {"fleets simulated": str(len(plan.rows)), "step times": plan.basis, "costs in": plan.unit}
    grids.append(tables.facts_grid(facts))
    sources = f"Simulated; {tables.times_known(plan.basis)}."
    lines, served = answers(plan.lines), lambda line: line[0].startswith("serve at ")
    tasks = ("Start a target with vLLM", "Start a target with SGLang")[: len(plan.commands) - 1]
    named = zip((*tasks, f"Measure that target at its share of {plan.loads[0]}"), plan.commands, strict=False)
    commands = [line for line in lines if served(line)] or named
    return ReportPage(
        plan.question, "a plan", tuple(line for line in lines if not served(line)), sources, (plan_of(plan),),
        tuple(grids), tuple(_summary(plan)), tuple(commands),
    )  # fmt: skip


def _summary(plan: Plan) -> Iterator[str]:
    """Say what to run, what a user gets, what that costs and what limits it, what is next, and what all rests on."""
    best, unit, lines = plan.chosen, plan.unit.partition(" (")[0], dict(answers(plan.lines))
    several = len(plan.loads) > 1
    run = "No fleet that was looked at meets the goals; closest: " if plan.scenario is None else "Run "
    build = run + _build(best, plan.lines[0]) + CHANGES * ("precision" in lines)
    yield f"Best at {lines['best']}." if several else f"{build}."
    yield " ".join(_user(plan.best(load)[0]) for load in dict.fromkeys((plan.loads[0], plan.loads[-1])))
    price = "${:.3g}" if unit == "$" else f"{{:.3g}} {unit}"
    costs = f"{price.format(best.cost_per_hour)} an hour, {price.format(best.per_million)} for a million tokens"
    goals = "".join(f"; {goal.line}" for goal in plan.goals)
    limit = f" Limit: {lines['limit'].partition(', with ')[0]}." if "limit" in lines else ""
    costs += f"{plan.unit.removeprefix(unit)}, at {number(best.tokens_per_s)} tokens/s in all{goals}"
    last = f"; at {plan.loads[-1]} {price.format(plan.best(plan.loads[-1])[0].per_million)} for a million" * several
    yield f"{f'At {best.load} it' if several else 'It'} costs {costs}{last}.{limit}"
    stays = re.findall(r"now \d+: no change needed", lines.get("depths", ""))
    if len(stays) == len(plan.loads):
        yield f"Draft length: {stays[0]}."
    if "ranges" in lines:
        yield f"How sure: {re.split(r'; | [(]', lines['ranges'])[0]}."
    others = [row for row in plan.best(best.load) if row is not best]
    if others:
        drafting = [row for row in others if row.depth]
        near = drafting[:2] + [row for row in drafting[2:] if "@" in row.method][:1]  # one elsewhere
        near += [row for row in others if not row.depth][:1]
        meets = " (meets the goals, too)" * (bool(plan.goals) and plan.scenario is not None)
        said = (f"{row.method}{f' at {row.target}' * (row.target != best.target)}, {in_words(row.standing)}"
                f"{'' if row.standing.startswith(('misses', 'cannot')) else meets}"
                for row in others if row in near)  # fmt: skip
        yield f"Second best{f' at {best.load}' * several}: {'; then '.join(said)}."
    yield from (f"{note[0].upper()}{note[1:]}." for note in plan.notes if note.startswith("left out: "))
    drafted = any(row.depth for row in plan.rows)
    given = [note.partition("; --")[0] for note in plan.notes if drafted and note.startswith("acceptance: ")]
    if given := [*re.findall(r": (prompts of .*\(defaults)", plan.title), *reversed(given)]:
        said = "; ".join(given).replace("(defaults", "(defaults)").replace("acceptance: assumes", "the assumption")
        yield f"This rests on {said}."


def _build(row: Row, line: str) -> str:
    """Say which devices a fleet takes, and what runs there; `line`: of the answer, on fewer."""
    model, _, place = row.target.partition("@")
    devices = ", ".join(f"{count} x {kind}" for kind, count in row.devices.items())
    spare = re.search(r" \(1 x [^()]+\)| \([^()]+ not needed\)", line)
    precision = place.partition(":")[2].replace(":", ", ")
    servers = f"{row.targets} server{'s' * (row.targets != 1)}{f', {row.prefills} for prefill' * (row.prefills > 0)}"
    ahead = f"with speculative decoding {row.depth} token{'s' * (row.depth != 1)} ahead by {row.method}"
    drafts = f"{f' in {precision}' * bool(precision)}, {ahead if row.depth else 'without speculative decoding'}"
    return f"{f'{model} on ' * bool(place)}{devices}{spare[0] if spare else ''}: {servers}{drafts}"


def _user(row: Row) -> str:
    """Say what a user gets, at a load."""
    first_s, rate, whole_s = (row.metrics[name].value for name in ("ttft_s", "tpot_s", "latency_s"))
    gets = f"a user waits {first_s:.2g} s for the first token, then gets {1 / rate:.3g} tokens/s"
    return f"At {row.load.replace('/s', ' requests/s', 1)} {gets}; a request takes {whole_s:.2g} s."


def _fleets(plan: Plan) -> Grid:
    unit = plan.unit.partition(" (")[0]
    headings = (
        "load", "fleet", "standing", "depth", "in flight at a target", f"{unit} an hour",
        f"{unit} / 10^6 tokens", "tokens/s", "tokens/s a user", *SHOWN, "seeds",
    )  # fmt: skip
    rows = [
        (row.load, row.fleet, row.standing, float(row.depth), row.in_flight, row.cost_per_hour,
         row.per_million, row.tokens_per_s, 1 / row.metrics["tpot_s"].value,
         *(scale * row.metrics[name].value if name in row.metrics else None for name, scale in SHOWN.values()),
         float(row.seeds))
        for row in plan.rows
    ]  # fmt: skip
    return Grid("Fleets", headings, rows, "Simulated.")


def run_page(run: Run) -> ReportPage:
    """Return the page of a run, simulated or measured."""
    header, fleet = run.header, run.header.fleet
    metrics, overload = assess(run)
    label = tables.label_in(header.world, header.replayed)
    answer = list(headline(metrics).items())
    if overload is not None:
        answer.insert(0, ("overload", f"{overload.line()}: no steady state, no intervals"))
    grids = [tables.metrics_grid(metrics, label), _targets(run, label)]
    grids += [*tables.scenario_grids(fleet, header.scenario, world=header.world), tables.run_grid(header, run.digest())]
    targets, drafters = fleet.verifiers.count, fleet.drafters.count
    title = f"{header.scenario.name}: {targets} target{'s' * (targets != 1)}, {drafters} drafter{'s' * (drafters != 1)}"
    sources, has_drafts = tables.known_as(label, fleet.basis), bool((steps_of(run.frame()).kind == "draft").any())
    figures = (timeline_of(run, most=MAX_LANES),) if has_drafts else ()
    first, rest = sentences(answer)
    return ReportPage(title, f"a {label} run", rest, sources, figures, tuple(grids), first)


def _targets(run: Run, label: str) -> Grid:
    """Return what each target got."""
    rows = measure_targets(run).rename(columns={name: f"{name}_per_target" for name in ("throughput", "rounds_per_s")})
    scales = [scale_of(*axis_label(name), rows[name].max()) for name in rows.columns[1:]]
    factors = [1.0, *(factor for _, factor in scales)]
    cells = [(*map(mul, factors, (tag + 1, *values)), label) for tag, *values in rows[:MAX_TARGETS].to_numpy().tolist()]
    return Grid("Each target", ("target", *(heading for heading, _ in scales), "label"), cells)


def demo_page(
    lines: Sequence[str], compared: Sequence[ComparedQuantity], of_fit: Sequence[ComparedQuantity],
    figures: Sequence[Drawn], profile: HardwareProfile, facts: Mapping[str, str],
) -> ReportPage:  # fmt: skip
    """Return the page of a demo: its lines, its figures, every error, the profile, and `facts` on how it ran.

    - `compared`, `of_fit`: the same quantities, with recorded and with fitted acceptance.
    """
    rows = [
        (row.quantity, case_text(row.case), row.sim, row.engine,
         *(error and 100 * error.value for error in (row.parameters, fit.parameters, row.mechanism)),
         row.host and 100 * row.host.absolute)
        for row, fit in zip(compared, of_fit, strict=True)
    ]  # fmt: skip
    headings = (
        "quantity", "cell", "simulated", "measured", "error, %", "beta-geometric, %", "mechanism, %", "rerun, %"
    )  # fmt: skip
    note = (
        "Error: of the simulation from the profile alone. Beta-geometric: the same with a fit to its acceptance. "
        "Mechanism: what remains with each run's own steps and acceptance. Rerun: how far two runs of the cell differ."
    )
    errors = Grid("Every quantity of every cell", headings, rows, note)
    grids = (errors, tables.profile_grid(profile), tables.facts_grid(facts))
    sources = "Measured by the engine on this host, and simulated from a profile that was calibrated here."
    first, rest = sentences(answers(lines))
    return ReportPage("Demo: one drafter, N targets", "a demo", rest, sources, tuple(figures), grids, first)


def sweep_page(scenario: Scenario, cells: Sequence[CellResult]) -> ReportPage:
    """Return the page of a sweep: the first cell's scenario, and all cells."""
    fleet, keys = resolve(scenario), list(dict.fromkeys(key for cell in cells for key in cell.cell))
    world, seeds = cells[0].world, cells[0].seeds
    basis = ", ".join(dict.fromkeys(cell.basis for cell in cells if cell.basis))
    label = tables.label_in(world, fleet.replayed)
    note = f"Of the first cell; {', '.join(keys)} {'vary' if len(keys) > 1 else 'varies'}."
    facts = {"cells": str(len(cells)), "seeds a cell": str(seeds), "world": world, "step times": basis}
    facts |= {f"values of {key}": ", ".join(dict.fromkeys(_text(cell, key) for cell in cells)) for key in keys}
    facts["digests of the cells' scenarios"] = ", ".join(cell.scenario_digest for cell in cells[:12])
    over = f" over {seeds} seeds" if seeds > 1 else ""
    sources = f"{tables.known_as(label, basis)} Ranges are 95 % intervals{over}."
    grids = (_cells(cells, keys, label), *tables.scenario_grids(fleet, scenario, note, world), tables.facts_grid(facts))
    first, rest = sentences(answers(_answer(cells)), max(3, min(MAX_SENTENCES, len(findings(cells)))))
    title = f"{scenario.name}: throughput by {' and '.join(axis_label(key)[0] for key in keys)}"
    return ReportPage(title, "a sweep", rest, sources, _curves(cells, keys), grids, first)


def _text(cell: CellResult, key: str) -> str:
    return text_of(shown(cell.cell).get(key))


def _curves(cells: Sequence[CellResult], keys: Sequence[str]) -> tuple[Drawn, ...]:
    """Draw metrics along the first key; other keys than two stay at the best cell's."""
    best = max(cells, key=lambda cell: cell.metrics["throughput"].value if "throughput" in cell.metrics else -math.inf)
    where = {key: _text(best, key) for key in keys[2:]}
    alike = [cell for cell in cells if all(_text(cell, key) == value for key, value in where.items())]
    having = {name for cell in alike for name in with_percentiles(cell.metrics)}
    return tuple(sweep_figure(table(cells), name, where) for name in DRAWN if name in having)


def _answer(cells: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for the most tokens, the fastest users, and cells that failed or were offered too much."""
    yield from findings(cells)
    of_users = (line for line in findings(cells, "tpot_p99_s") if line.startswith("best "))
    yield from (line.replace("best tpot_p99_s", "least TPOT P99") for line in of_users)
    failed, full = [cell for cell in cells if cell.error], [cell for cell in cells if cell.overload]
    if failed:
        yield f"failed: {len(failed)} of {len(cells)} cells; the first: {failed[0].error}"
    if full:
        yield f"overloaded: {len(full)} of {len(cells)} cells, offered more than they carry: {full[0].overload}"


def _cells(cells: Sequence[CellResult], keys: Sequence[str], label: str) -> Grid:
    every = [with_percentiles(cell.metrics) for cell in cells]
    having = {name: [metrics[name].value for metrics in every if name in metrics] for name in TABLED}
    scales = {name: scale_of(*axis_label(name), max(values)) for name, values in having.items() if values}
    rows = [
        (*(float(value) if type(value := in_unit(key, cell.cell.get(key))) in (int, float) else _text(cell, key)
           for key in keys),
         *(factor * tables.clipped(metrics[name].value, axis_label(name)[1]) if name in metrics else None
           for name, (_, factor) in scales.items()), label)
        for cell, metrics in zip(cells, every, strict=True)
    ]  # fmt: skip
    headings = (*keys, *(heading for heading, _ in scales.values()), "label")
    return Grid("All cells", headings, rows, "sweep.csv in the folder holds every metric with its interval.")


def report(results: str | Path, out: str | Path | None = None) -> str:
    """Return one self-contained HTML page of results, and write it to `out` if given.

    `results`: a run (Parquet), the folder of a sweep or of a plan, or a plan (JSON). The page shows the answer first,
    figures, tables to sort, the resolved scenario, and where every number comes from. It loads nothing and sends
    nothing, and is the same for the same results. Raises InputError for anything else, and OutputError where it cannot
    be written.

    >>> import specfleet, tempfile, pathlib
    >>> run = pathlib.Path(tempfile.mkdtemp()) / "run.parquet"
    >>> specfleet.simulate("star", workload={"requests": 20}).save(run)
    >>> specfleet.report(run).startswith("<!DOCTYPE html>")
    True
    """
    if out is not None:
        check_writable(Path(out))
    page = html_of(page_of(Path(results)))
    if out is not None:
        write_file(Path(out), page)
    return page


def page_of(path: Path) -> ReportPage:
    """Return the page of the results at a path; InputError where they are of no known kind, or damaged."""
    if is_file(path):
        return plan_page(read_plan(path)) if path.suffix == ".json" else run_page(read_run(path))
    if not os.path.isdir(path):  # as is_file: a name may be too long for a place
        raise InputError(f"{path}: is neither file nor folder; {ALLOWED}")
    if is_file(path / PLAN):
        return plan_page(read_plan(path / PLAN))
    if is_file(path / RECORD):
        return sweep_page(*read_sweep(path))
    raise InputError(f"{path}: holds no results; {ALLOWED}")
