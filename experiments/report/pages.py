"""The pages of a plan, a run and a sweep: the answer, its figures, its tables."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from specfleet.experiments.compare.compare import Comparison, PredictionError
from specfleet.experiments.console.headline import headline
from specfleet.experiments.console.printing import case_text
from specfleet.experiments.draw import Drawn, plan_of, timeline_of
from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.report.page import Grid, ReportPage
from specfleet.experiments.report.plans import answers
from specfleet.experiments.report.tables import (
    facts_grid,
    known_as,
    label_in,
    metrics_grid,
    profile_grid,
    run_grid,
    scenario_grids,
    warned,
)
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.figure import sweep_figure, unit_of_metric
from specfleet.experiments.sweep.findings import findings
from specfleet.experiments.sweep.sweep import table
from specfleet.experiments.sweep.table import ANALYTIC, in_numbers, keys_of, text_of
from specfleet.figures.timeline import steps_of
from specfleet.fleet.records.metrics.measure import assess, measure_targets
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile

MAX_LANES = 24
MAX_TARGETS = 500
UNITS = {
    "tag": "target", "throughput": "throughput, tokens/s", "rounds_per_s": "rounds/s", "wait_s": "wait, s",
    "return_s": "return, s", "acceptance_length": "accepted, tokens/round",
}  # fmt: skip
DRAWN = ("throughput", "tpot_p99_s", "load")  # a figure each of a sweep, along its first key
TABLED = ("throughput", "tpot_p50_s", "tpot_p99_s", "ttft_p99_s", "wait_p99_s", "load", "mean_acceptance_length")


def plan_page(plan: Plan) -> ReportPage:
    """Return the page of a plan."""
    answer = tuple(answers(plan.lines))
    grids = [_goals(plan)] if plan.goals else []
    metrics = [(name, one.value, one.low, one.high, "simulated") for name, one in plan.metrics.items()]
    grids += [_fleets(plan), Grid("Metrics of the chosen fleet", ("metric", "value", "low", "high", "label"), metrics)]
    if plan.rule is not None:
        units = {"S_s": "s", "Z_s": "s", "planned": "targets a drafter"}
        rule = [(name, float(getattr(plan.rule, name)), units.get(name, "targets"), "equations")
                for name in plan.rule.__struct_fields__]  # fmt: skip
        grids.append(Grid("The paper's rule of thumb", ("quantity", "value", "unit", "label"), rule))
    if plan.scenario is not None:
        grids += scenario_grids(resolve(plan.scenario), plan.scenario, "The chosen fleet.")
    facts = {
        "fleets looked at by equations": str(plan.screened),
        "simulations": str(plan.simulations),
        "step times": plan.basis,
        "step times of each role may be off by": f"{plan.step_error:.0%}, at 95 %",
        "costs in": plan.unit,
    }
    sources = (
        f"Simulated; step times are {plan.basis}. Ranges are 95 %: the simulation's chance, and step times of each "
        f"role off by {plan.step_error:.0%}.{warned(plan.basis)}"
    )
    return ReportPage(plan.question, "a plan", answer, sources, (plan_of(plan),), (*grids, facts_grid(facts)))


def _goals(plan: Plan) -> Grid:
    rows = [
        (goal.text, goal.range.value, goal.range.low, goal.range.high, goal.limit, goal.state, "simulated")
        for goal in plan.goals
    ]
    return Grid("Goals of the chosen fleet", ("goal", "value", "low", "high", "limit", "state", "label"), rows)


def _fleets(plan: Plan) -> Grid:
    rows = [
        (
            row.fleet, row.standing, row.tokens_per_s, row.tokens_per_s_per_user,
            None if row.tpot_p99_s is None else 1e3 * row.tpot_p99_s, row.cost_per_hour, row.cost_per_million,
            float(row.seeds), row.method,
        )
        for row in plan.rows
    ]  # fmt: skip
    headings = (
        "fleet", "standing", "tokens/s", "tokens/s a user", "TPOT P99, ms", f"{plan.unit} an hour",
        f"{plan.unit} / 10^6 tokens", "seeds", "label",
    )  # fmt: skip
    return Grid("Fleets", headings, rows)


def run_page(run: Run) -> ReportPage:
    """Return the page of a run, simulated or measured."""
    header, fleet = run.header, run.header.fleet
    metrics, overload = assess(run)
    label = label_in(header.world, header.replayed)
    answer = list(headline(metrics).items())
    if overload is not None:
        answer.insert(0, ("overload", f"{overload.line()}: no steady state, no intervals"))
    grids = [metrics_grid(metrics, label), _targets(run, label)]
    grids += [*scenario_grids(fleet, header.scenario), run_grid(header, run.digest())]
    title = f"{header.scenario.name}: {fleet.verifiers.count} targets, {fleet.drafters.count} drafters"
    sources = known_as(label, fleet.basis)
    return ReportPage(title, f"a {label} run", tuple(answer), sources, _timeline(run), tuple(grids))


def _timeline(run: Run) -> tuple[Drawn, ...]:
    """Draw the steps of the first stations; nothing for a run without drafts."""
    has_drafts = bool((steps_of(run.frame()).kind == "draft").any())
    return (timeline_of(run, most=MAX_LANES),) if has_drafts else ()


def _targets(run: Run, label: str) -> Grid:
    """Return what each target got."""
    rows = measure_targets(run)
    headings = [*(UNITS.get(name, name) for name in rows.columns), "label"]
    cells = [(float(tag + 1), *map(float, values), label) for tag, *values in rows[:MAX_TARGETS].to_numpy().tolist()]
    return Grid("Each target", headings, cells)


def demo_page(
    lines: Sequence[str], comparison: Comparison, figures: Sequence[Drawn], profile: HardwareProfile,
    facts: Mapping[str, str],
) -> ReportPage:  # fmt: skip
    """Return the page of a demo: its lines, its figures, every error, the profile, and `facts` on how it ran."""
    rows = [
        (
            row.quantity, case_text(row.case), row.sim, row.engine, *map(_percent, (row.parameters, row.mechanism)),
            None if row.host is None else 100 * row.host.absolute,
        )
        for row in comparison.rows
    ]  # fmt: skip
    headings = ("quantity", "cell", "simulated", "measured", "error, %", "mechanism, %", "rerun, %")
    note = (
        "Error: of the simulation from the profile alone. Mechanism: what remains with each run's own steps and "
        "acceptance. Rerun: how far two runs of the cell differ."
    )
    grids = (Grid("Every quantity of every cell", headings, rows, note), profile_grid(profile), facts_grid(facts))
    answer = tuple(answers(line.strip() for line in lines))
    sources = "Measured by the engine on this host, and simulated from a profile that was calibrated here."
    return ReportPage("Demo: one drafter, N targets", "a demo", answer, sources, tuple(figures), grids)


def _percent(error: PredictionError | None) -> float | None:
    return None if error is None else 100 * error.value


def sweep_page(name: str, scenario: Scenario, cells: Sequence[CellResult]) -> ReportPage:
    """Return the page of a sweep: the name of its folder, the first cell's scenario, and all cells."""
    whole, fleet = table(cells), resolve(scenario)
    numbers = in_numbers(whole)
    simulated = numbers[numbers.world != ANALYTIC]
    keys = keys_of(numbers)
    empty = {key: numbers[key].astype(object).where(numbers[key].notna(), "none") for key in keys}
    simulated = simulated.assign(**{key: values for key, values in empty.items() if numbers[key].isna().any()})
    wide = simulated.pivot_table(index=keys, columns="quantity", values="value", sort=False).reset_index()
    world, seeds = cells[0].world, cells[0].seeds
    basis = ", ".join(dict.fromkeys(cell.basis for cell in cells if cell.basis))
    label = label_in(world, fleet.replayed)
    note = f"Of the first cell; {', '.join(keys)} {'vary' if len(keys) > 1 else 'varies'}."
    digests = ", ".join(cell.scenario_digest for cell in cells[:12]) + (" ..." if len(cells) > 12 else "")
    facts = {
        "cells": str(len(wide)),
        "seeds a cell": str(seeds),
        "world": world,
        "step times": basis,
        **{f"values of {key}": ", ".join(dict.fromkeys(map(text_of, whole[key]))) for key in keys},
        "digests of the cells' scenarios": digests,
    }
    over = f" over {seeds} seeds" if seeds > 1 else ""
    sources = f"{known_as(label, basis)} Ranges are 95 % intervals{over}."
    grids = (_cells(simulated, wide, keys, label), *scenario_grids(fleet, scenario, note), facts_grid(facts))
    answer, figures = tuple(answers(_answer(cells))), _of_sweep(whole, wide, keys)
    return ReportPage(f"Sweep {name}", "a sweep", answer, sources, figures, grids)


def _of_sweep(table: pd.DataFrame, wide: pd.DataFrame, keys: Sequence[str]) -> tuple[Drawn, ...]:
    """Draw metrics along the first key; other keys than two stay at the best cell's."""
    best = (
        wide.loc[wide.throughput.idxmax()] if "throughput" in wide and wide.throughput.notna().any() else wide.iloc[0]
    )
    where = {key: text_of(best[key]) for key in keys[2:]}
    chosen = wide[[all(text_of(row[key]) == where[key] for key in where) for _, row in wide.iterrows()]]
    drawn = [name for name in DRAWN if name in chosen and chosen[name].notna().any()]
    return tuple(sweep_figure(table, name, where) for name in drawn)


def _answer(cells: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for the most tokens, the fastest users, and cells that failed or were offered too much."""
    yield from findings(cells)
    yield from findings(cells, "tpot_p99_s")[:1]
    failed, full = [cell for cell in cells if cell.error], [cell for cell in cells if cell.overload]
    if failed:
        yield f"failed: {len(failed)} cells; the first: {failed[0].error}"
    if full:
        yield f"overloaded: {len(full)} cells were offered more than they carry: {full[0].overload}"


def _cells(simulated: pd.DataFrame, wide: pd.DataFrame, keys: Sequence[str], label: str) -> Grid:
    shown = [metric for metric in TABLED if metric in wide]
    units = [unit_of_metric(metric, simulated[simulated.quantity == metric]) for metric in shown]
    rows = [
        (*(row[key] if isinstance(row[key], str) else float(row[key]) for key in keys),
         *(float(row[metric]) for metric in shown), label)
        for _, row in wide.iterrows()
    ]  # fmt: skip
    headings = (*keys, *(f"{metric}, {unit}" for metric, unit in zip(shown, units, strict=True)), "label")
    return Grid("All cells", headings, rows, "sweep.csv in the folder holds every metric with its interval.")
