"""The page of a sweep: which cells are best, metrics along its first key, speed against throughput, all cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.cell import CellResult
from experiments.report.axes import Axis, axis_of
from experiments.report.marks import Chart, Dot, Series, colour_of
from experiments.report.page import Grid, Page, grid
from experiments.report.settled import facts_grid, fleet_grid, known_as, profile_grid
from experiments.sweep_figure import unit_of_metric, what_is
from experiments.sweep_table import ANALYTIC, in_numbers, keys_of, text_of
from figures.front import unbeaten
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile

SHOWN = ("throughput", "tpot_p99_s", "load")  # a figure each, along the first key
TABLED = ("throughput", "tpot_p50_s", "tpot_p99_s", "ttft_p99_s", "wait_p99_s", "load", "mean_acceptance_length")
MOST_LINES = 8
MOST_NAMED = 4
FAR = 30  # between the least and the largest number of an axis, from which on they stand side by side


def sweep_page(name: str, table: pd.DataFrame, cells: Sequence[CellResult], scenario: Scenario | None) -> Page:
    """Return the page of a sweep's table; `cells` tell what failed, `scenario` is that of the first cell."""
    numbers = in_numbers(table)
    told = numbers[numbers.world != ANALYTIC]
    keys = keys_of(numbers)
    wide = told.pivot_table(index=keys, columns="quantity", values="value", sort=False).reset_index()
    worlds = [str(world) for world in told.world.unique()]
    bases = [str(basis) for basis in told.basis.dropna().unique()] if "basis" in told else ["unknown"]
    label = "measured" if worlds == ["engine"] else "simulated"
    seeds = max((cell.seeds for cell in cells), default=1)
    charts = [_along(numbers, keys, metric, label) for metric in SHOWN if metric in wide]
    if {"tpot_p99_s", "throughput"} <= set(wide.columns):
        charts.insert(0, _front(wide, keys, label))
    facts = {
        "cells": str(len(wide)),
        "seeds a cell": str(seeds),
        "world": ", ".join(worlds),
        "step times": ", ".join(bases),
        **{f"values of {key}": ", ".join(dict.fromkeys(map(text_of, table[key]))) for key in keys},
        "digests of the cells' scenarios": ", ".join(cell.scenario_digest for cell in cells[:12])
        + (" ..." if len(cells) > 12 else ""),
    }
    grids = [_cells(told, wide, keys, label)]
    if scenario is not None:
        note = f"Of the first cell; {', '.join(keys)} {'vary' if len(keys) > 1 else 'varies'}."
        grids.append(fleet_grid(settle(scenario), note))
        if isinstance(scenario.profile, HardwareProfile):
            grids.append(profile_grid(scenario.profile))
    known = " ".join([*(known_as(world, ", ".join(bases)) for world in worlds),
                      "Ranges are 95 % intervals" + (f" over {seeds} seeds." if seeds > 1 else ".")])  # fmt: skip
    return Page(f"Sweep {name}", "a sweep", _answer(told, wide, keys, cells), known, tuple(charts),
                (*grids, facts_grid(facts)))  # fmt: skip


def _answer(
    told: pd.DataFrame, wide: pd.DataFrame, keys: Sequence[str], cells: Sequence[CellResult]
) -> tuple[tuple[str, str], ...]:
    lines = []
    for name, metric, more in (("most tokens", "throughput", True), ("fastest users", "tpot_p99_s", False)):
        if metric in wide and wide[metric].notna().any():
            row = wide.loc[wide[metric].idxmax() if more else wide[metric].idxmin()]
            lines.append((name, f"{_name(row, keys)}: {_value(told, row, keys, metric)}"))
    if {"tpot_p99_s", "throughput"} <= set(wide.columns):
        both = wide.dropna(subset=["tpot_p99_s", "throughput"])
        best = both[unbeaten(both.rename(columns={"tpot_p99_s": "x", "throughput": "y"}), (False, True))]
        names = "; ".join(_name(row, keys) for _, row in best.iloc[:MOST_NAMED].iterrows())
        more = f"; and {len(best) - MOST_NAMED} more" if len(best) > MOST_NAMED else ""
        lines.append(("unbeaten in both", f"{len(best)} of {len(wide)} cells: {names}{more}"))
    failed, full = [cell for cell in cells if cell.error], [cell for cell in cells if cell.overload]
    if failed:
        lines.append(("failed", f"{len(failed)} cells; the first: {failed[0].error}"))
    if full:
        lines.append(("overloaded", f"{len(full)} cells were offered more than they carry: {full[0].overload}"))
    return tuple(lines)


def _value(told: pd.DataFrame, row: pd.Series, keys: Sequence[str], metric: str) -> str:
    """A metric of a cell with its unit and interval."""
    same = told[told.quantity == metric]
    for key in keys:
        same = same[same[key] == row[key]]
    one, unit = same.iloc[0], unit_of_metric(metric, same)
    factor, shown = (1e3, "ms") if unit == "s" else (1.0, unit)
    ranged = not np.isnan(one.low)
    ends = f" ({factor * one.low:.4g} .. {factor * one.high:.4g})" if ranged else " (no interval)"
    return f"{metric.removesuffix('_s') if unit == 's' else metric} {factor * one.value:.4g} {shown}{ends}"


def _name(row: pd.Series, keys: Sequence[str]) -> str:
    return ", ".join(f"{key} = {text_of(row[key])}" for key in keys)


def _axis(label: str, column: pd.Series) -> tuple[Axis, dict[Any, float]]:
    """The axis of a key's values, and where each of them stands."""
    values = list(dict.fromkeys(column))
    if pd.api.types.is_numeric_dtype(column):
        values.sort()
        if len(values) == 1 or values[0] < 0 or values[-1] <= FAR * max(values[0], 1e-300):
            return axis_of(label, [float(value) for value in values]), {value: float(value) for value in values}
    places = {value: float(place) for place, value in enumerate(values)}
    return axis_of(label, [], [text_of(value) for value in values]), places


def _along(table: pd.DataFrame, keys: Sequence[str], metric: str, label: str) -> Chart:
    """Draw a metric along the first key, a line for each combination of the others."""
    rows = table[table.quantity == metric]
    first, others = keys[0], list(keys[1:])
    unit = unit_of_metric(metric, rows)
    factor, shown = (1e3, "ms") if unit == "s" and rows.value.abs().max() < 1 else (1.0, unit)
    x, places = _axis(first, rows[first])
    names = pd.Series([", ".join(map(text_of, row)) for row in rows[others].itertuples(index=False)], rows.index)
    lines = list(dict.fromkeys(names))
    series, values = [], []
    for number, line in enumerate(lines[:MOST_LINES]):
        for world, part in rows[names == line].groupby("world", sort=False):
            ordered = part.assign(place=part[first].map(places)).sort_values("place")
            dots = tuple(_dot(row, line, (first, metric, shown), factor) for row in ordered.itertuples())
            values += [one for dot in dots for one in (dot.y, dot.low, dot.high) if one is not None]
            analytic = world == ANALYTIC
            series.append(Series(line, colour_of(number), dots, True, analytic, not analytic and not x.words))
    left_out = f" {len(lines) - MOST_LINES} more lines are left out." if len(lines) > MOST_LINES else ""
    dashed = " Dashed: by the equations." if (rows.world == ANALYTIC).any() else ""
    hollow = " Hollow: no interval." if rows[rows.world != ANALYTIC].low.isna().any() else ""
    caption = f"{what_is(metric)} Dots are {label}, bars and bands 95 % intervals.{hollow}{dashed}{left_out}"
    y = axis_of(f"{metric.removesuffix('_s') if unit == 's' else metric}, {shown}", values, (), from_zero=True)
    heading = ", ".join(key.rpartition(".")[2] for key in others)
    return Chart(f"{metric} along {first}", x, y, caption, tuple(series), heading=heading)


def _dot(row: Any, line: str, names: tuple[str, str, str], factor: float) -> Dot:
    first, metric, unit = names
    ranged = not np.isnan(row.low)
    low, high = (factor * row.low, factor * row.high) if ranged else (None, None)
    ends = f" ({low:.4g} .. {high:.4g})" if ranged else ""
    x = row[1 + list(row._fields[1:]).index(first)] if first in row._fields else row[1]
    tip = f"{first} {text_of(x)}{f'; {line}' if line else ''}\n{metric} {factor * row.value:.4g}{ends} {unit}"
    return Dot(float(row.place), factor * row.value, tip, low, high, not ranged)


def _front(wide: pd.DataFrame, keys: Sequence[str], label: str) -> Chart:
    """Draw throughput against the time for a token, a dot a cell."""
    both = wide.dropna(subset=["tpot_p99_s", "throughput"])
    points = pd.DataFrame({"x": 1e3 * both.tpot_p99_s, "y": both.throughput, "line": both[keys[-1]].map(text_of)})
    points["tip"] = [
        f"{_name(row, keys)}\n{row.throughput:.4g} tokens/s\nTPOT P99 {1e3 * row.tpot_p99_s:.4g} ms"
        for _, row in both.iterrows()
    ]
    series = [
        Series(f"{keys[-1]} = {line}", colour_of(number), _dots(rows), False)
        for number, (line, rows) in enumerate(points.groupby("line", sort=False))
    ]
    border = points[unbeaten(points, (False, True))].sort_values("x").assign(tip="")
    series.insert(0, Series("", "#777777", _dots(border), True, True))
    caption = f"A dot a cell ({label}). Joined: nothing has both more tokens/s and less time for a token."
    x = axis_of("time for a token at P99, ms", points.x.tolist(), from_zero=True)
    y = axis_of("tokens/s", points.y.tolist(), (), True)
    return Chart("Throughput against speed", x, y, caption, tuple(series))


def _dots(points: pd.DataFrame) -> tuple[Dot, ...]:
    return tuple(Dot(float(one.x), float(one.y), one.tip) for one in points.itertuples())


def _cells(told: pd.DataFrame, wide: pd.DataFrame, keys: Sequence[str], label: str) -> Grid:
    shown = [metric for metric in TABLED if metric in wide]
    units = {metric: unit_of_metric(metric, told[told.quantity == metric]) for metric in shown}
    rows = [
        (*(row[key] if isinstance(row[key], str) else float(row[key]) for key in keys),
         *(float(row[metric]) for metric in shown), label)
        for _, row in wide.iterrows()
    ]  # fmt: skip
    headings = (*keys, *(f"{metric.removesuffix('_s')}, {units[metric]}" for metric in shown), "label")
    return grid("All cells", headings, rows, "sweep.csv in the folder holds every metric with its interval.")
