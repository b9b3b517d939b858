"""The page of results: of a plan, a run, a sweep or a demo; the answer, its figures, its tables."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from specfleet.experiments.compare.compare import ComparedQuantity, PredictionError
from specfleet.experiments.console.headline import headline
from specfleet.experiments.console.printing import case_text
from specfleet.experiments.draw import plan_of, read_plan, timeline_of
from specfleet.experiments.plan.answer import Plan, Row
from specfleet.experiments.plan.lines import GIVEN
from specfleet.experiments.report import tables
from specfleet.experiments.report.page import Grid, ReportPage, html_of
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.figure import sweep_figure, text_of
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
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.meaning.entries import axis_label

SHOWN = {f"{name}, ms": (metric, 1e3) for name, metric in GIVEN.items()}
"""Times of a fleet by their headings, and what they are multiplied by."""
MAX_LANES = 24  # of the first stations, in a figure of their steps
MAX_TARGETS = 500
UNITS = {
    "tag": "target", "throughput": "throughput, tokens/s", "rounds_per_s": "rounds/s", "wait_s": "wait, s",
    "ttft_s": "TTFT, s", "tpot_p50_s": "TPOT P50, s", "tpot_p99_s": "TPOT P99, s", "return_s": "return, s",
    "acceptance_length": "accepted, tokens/round",
}  # fmt: skip
DRAWN = ("throughput", "tpot_p99_s", "load")  # a figure each of a sweep, along its first key
TABLED = ("throughput", "tpot_p50_s", "tpot_p99_s", "ttft_p99_s", "wait_p99_s", "load", "mean_acceptance_length")
PLAN = "plan.json"
ALLOWED = "allowed: a run (Parquet), the folder of a sweep (sweep.json) or of a plan (plan.json)"


def answers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the head and the text of each line of an answer."""
    for line in lines:
        head, _, text = line.replace("(needs ", "(no interval: it needs ").partition(": ")
        yield head, text


def sentences(answer: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the first three lines of an answer as sentences, and the others."""
    return tuple(f"{head[:1].upper()}{head[1:]}: {text}." for head, text in answer[:3]), tuple(answer[3:])


def plan_page(plan: Plan) -> ReportPage:
    """Return the page of a plan."""
    grids = [_fleets(plan)]
    if plan.goals:
        goals = [(goal.text, goal.said(), goal.state, "simulated") for goal in plan.goals]
        grids.append(Grid("Goals of the chosen fleet", ("goal", "reached", "state", "label"), goals))
    if plan.rule is not None:
        units = {"S_s": "s", "Z_s": "s", "planned": "targets a drafter"}
        rule = [(name, float(getattr(plan.rule, name)), units.get(name, "targets"), "equations")
                for name in plan.rule.__struct_fields__ if name not in ("drafter", "depth")]  # fmt: skip
        note = f"For depth {plan.rule.depth}, and one request at a time at each target."
        grids.append(Grid("StarSD's numbers of targets", ("quantity", "value", "unit", "label"), rule, note))
    if plan.scenario is not None:
        grids += tables.scenario_grids(resolve(plan.scenario), plan.scenario, "The chosen fleet.")
    facts = {"fleets simulated": str(len(plan.rows)), "step times": plan.basis, "costs in": plan.unit}
    grids.append(tables.facts_grid(facts))
    sources = f"Simulated; {tables.times_known(plan.basis)}."
    lines, served = list(answers(plan.lines)), lambda line: line[0].startswith("serve at ")
    tasks = ("Start a target with vLLM", "Start a target with SGLang")[: len(plan.commands) - 1]
    named = zip((*tasks, f"Measure that target at its share of {plan.loads[0]}"), plan.commands, strict=False)
    commands = [line for line in lines if served(line)] or named
    return ReportPage(
        plan.question, "a plan", tuple(line for line in lines if not served(line)), sources, (plan_of(plan),),
        tuple(grids), tuple(_summary(plan)), tuple(commands),
    )  # fmt: skip


def _summary(plan: Plan) -> Iterator[str]:
    """Say a plan in a few sentences: what to run, what it gives, what that is worth, and what it rests on."""
    best, unit = plan.chosen, plan.unit.partition(" (")[0]
    if len(plan.loads) > 1:
        _, _, text = plan.lines[0].partition(": ")
        yield f"Best at {text}."
    elif plan.scenario is None:
        yield f"No fleet that was looked at meets the goals; closest is {best.fleet}."
    else:
        yield f"Run {best.fleet}."
    goals = "".join(f"; {goal.text}: {goal.said(is_short=True)}, {goal.state}" for goal in plan.goals)
    shown = [plan.best(load)[0] for load in dict.fromkeys((plan.loads[0], plan.loads[-1]))]
    users = [f"{1 / row.metrics['tpot_s'].value:.3g} a user once it streams, at {row.load}" for row in shown]
    gives = [f"{row.tokens_per_s:.4g} tokens/s in all, {user}" for row, user in zip(shown, users, strict=True)]
    price = "${:.3g}" if unit == "$" else f"{{:.3g}} {unit}"
    costs = f"an hour costs {price.format(best.cost_per_hour)}, 10^6 tokens {price.format(best.per_million)}"
    yield f"It gives {' and '.join(gives)}; {costs}{f' at {best.load}' * (len(gives) > 1)}{goals}."
    others = [row for row in plan.best(best.load) if row is not best]
    if others:
        plain = [row for row in others if not row.depth]
        near = [row for row in others if row not in plain][:2]
        named = "; ".join(f"{row.method} at {row.target}: {row.standing}" for row in [*near, *plain[:1]])
        yield f"Next{f' at {best.load}' * (len(gives) > 1)}: {named}."
    if given := [note[12:].partition("; --")[0] for note in plan.notes if note.startswith("acceptance: ")]:
        yield f"This rests on acceptance: {'; '.join(reversed(given))}."


def _fleets(plan: Plan) -> Grid:
    unit = plan.unit.partition(" (")[0]
    headings = (
        "load", "fleet", "standing", "depth", "in flight at a target", f"{unit} an hour",
        f"{unit} / 10^6 tokens", "tokens/s", "tokens/s a user", *SHOWN, "seeds",
    )  # fmt: skip
    return Grid("Fleets", headings, [_fleet(row) for row in plan.rows], "Simulated.")


def _fleet(row: Row) -> tuple[str | float | None, ...]:
    return (
        row.load, row.fleet, row.standing, float(row.depth), row.in_flight, row.cost_per_hour,
        row.per_million, row.tokens_per_s, 1 / row.metrics["tpot_s"].value,
        *(scale * row.metrics[name].value if name in row.metrics else None for name, scale in SHOWN.values()),
        float(row.seeds),
    )  # fmt: skip


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
    counts = f"{targets} target{'s' * (targets != 1)}, {drafters} drafter{'s' * (drafters != 1)}"
    title = f"{header.scenario.name}: {counts}"
    sources, has_drafts = tables.known_as(label, fleet.basis), bool((steps_of(run.frame()).kind == "draft").any())
    figures = (timeline_of(run, most=MAX_LANES),) if has_drafts else ()
    first, rest = sentences(answer)
    return ReportPage(title, f"a {label} run", rest, sources, figures, tuple(grids), first)


def _targets(run: Run, label: str) -> Grid:
    """Return what each target got."""
    rows = measure_targets(run)
    headings = [*(UNITS.get(name, name) for name in rows.columns), "label"]
    cells = [(float(tag + 1), *map(float, values), label) for tag, *values in rows[:MAX_TARGETS].to_numpy().tolist()]
    return Grid("Each target", headings, cells)


def demo_page(
    lines: Sequence[str], compared: Sequence[ComparedQuantity], of_fit: Sequence[ComparedQuantity],
    figures: Sequence[Drawn], profile: HardwareProfile, facts: Mapping[str, str],
) -> ReportPage:  # fmt: skip
    """Return the page of a demo: its lines, its figures, every error, the profile, and `facts` on how it ran.

    - `compared`, `of_fit`: the same quantities, with recorded and with fitted acceptance.
    """
    rows = [
        (
            row.quantity, case_text(row.case), row.sim, row.engine,
            *map(_percent, (row.parameters, fit.parameters, row.mechanism)),
            None if row.host is None else 100 * row.host.absolute,
        )
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
    first, rest = sentences(tuple(answers(lines)))
    return ReportPage("Demo: one drafter, N targets", "a demo", rest, sources, tuple(figures), grids, first)


def _percent(error: PredictionError | None) -> float | None:
    return None if error is None else 100 * error.value


def sweep_page(scenario: Scenario, cells: Sequence[CellResult]) -> ReportPage:
    """Return the page of a sweep: the first cell's scenario, and all cells."""
    fleet, keys = resolve(scenario), list(dict.fromkeys(key for cell in cells for key in cell.cell))
    world, seeds = cells[0].world, cells[0].seeds
    basis = ", ".join(dict.fromkeys(cell.basis for cell in cells if cell.basis))
    label = tables.label_in(world, fleet.replayed)
    note = f"Of the first cell; {', '.join(keys)} {'vary' if len(keys) > 1 else 'varies'}."
    facts = {
        "cells": str(len(cells)),
        "seeds a cell": str(seeds),
        "world": world,
        "step times": basis,
        **{f"values of {key}": ", ".join(dict.fromkeys(_text(cell, key) for cell in cells)) for key in keys},
        "digests of the cells' scenarios": ", ".join(cell.scenario_digest for cell in cells[:12]),
    }
    over = f" over {seeds} seeds" if seeds > 1 else ""
    sources = f"{tables.known_as(label, basis)} Ranges are 95 % intervals{over}."
    grids = (_cells(cells, keys, label), *tables.scenario_grids(fleet, scenario, note, world), tables.facts_grid(facts))
    first, rest = sentences(tuple(answers(_answer(cells))))
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
        yield f"failed: {len(failed)} cells; the first: {failed[0].error}"
    if full:
        yield f"overloaded: {len(full)} cells were offered more than they carry: {full[0].overload}"


def _cells(cells: Sequence[CellResult], keys: Sequence[str], label: str) -> Grid:
    every = [with_percentiles(cell.metrics) for cell in cells]
    having = {name: [metrics[name].value for metrics in every if name in metrics] for name in TABLED}
    scales = {name: scale_of(*axis_label(name), max(values)) for name, values in having.items() if values}
    rows = [
        (*(float(value) if isinstance(value := cell.cell.get(key), (int, float)) else _text(cell, key) for key in keys),
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
