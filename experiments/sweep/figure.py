"""The figure of a sweep that a question asks for: lines with bands, a heat map, or two metrics against each other."""

import pandas as pd
from matplotlib.figure import Figure

from experiments.sweep.table import (
    ANALYTIC,
    SweepPlot,
    cells_where,
    completed,
    differences_of,
    in_numbers,
    keys_of,
    points_of,
    text_of,
)
from figures import front, heat, sweep
from figures.labels import Scale, scale_of
from fleet.errors import InputError
from fleet.records.metrics.glossary import meanings
from fleet.times.labels import warning_of

LESS_UNITS = ("s", "W", "J/token", "bytes")  # of metrics of which less is better, and how names of others begin
LESS_NAMES = ("cost", "energy", "given_up", "refused", "alone", "realign")


def sweep_figure(table: pd.DataFrame, wanted: SweepPlot) -> tuple[Figure, str]:
    """Draw the chosen columns of a sweep's table, and return the figure with its caption."""
    table = in_numbers(table)
    plot = completed(table, wanted)
    conditions = "".join(f", {key} = {value}" for key, value in plot.where.items())
    if plot.against and plot.kind != "lines":
        raise InputError(f"figure sweep: --against is for --kind lines, not for {plot.kind}")
    if plot.kind == "pareto":
        figure, caption = _front(table, plot)
    else:
        points = points_of(table, plot)
        results = points[points.world != ANALYTIC]
        if plot.kind == "heat":
            figure, caption = _heat(results if len(results) else points, plot)
        else:
            figure, caption = _lines(points, plot)
    bases = table.basis.dropna().unique() if "basis" in table else []
    warnings = [f"{text[0].upper()}{text[1:]}." for text in {warning_of(str(one)) for one in bases} - {""}]
    return figure, " ".join([*([f"Cells with {conditions[2:]}."] if conditions else []), caption, *warnings])


def answer_of(table: pd.DataFrame, wanted: SweepPlot) -> pd.DataFrame:
    """Return the differences that the figure shows: x, line, value, low, high; empty without `against`."""
    table = in_numbers(table)
    plot = completed(table, wanted)
    return differences_of(points_of(table, plot), plot.lines, plot.against) if plot.against else pd.DataFrame()


def _lines(points: pd.DataFrame, plot: SweepPlot) -> tuple[Figure, str]:
    differences = differences_of(points, plot.lines, plot.against) if plot.against else None
    x, y = _key_scale(plot, points), _metric_scale(plot.y, points)
    figure = sweep.draw(points, x, y, plot.lines, differences, f"{plot.lines} = {plot.against}")
    results = points[points.world != ANALYTIC]
    seeds = max((len(one) for one in results.by_seed), default=0)
    over = f"means over {seeds} seeds" if seeds > 1 else "one run a cell"
    parts = [what_is(plot.y)]
    if len(results):
        parts.append(f"Points: {over}; bars and bands: 95 % intervals.")
        if results.low.isna().any():
            parts.append("Hollow: no interval, since runs are too short for one or more was offered than is carried.")
    if (points.world == ANALYTIC).any():
        parts.append("Dashed: by the equations, which leave out prefill.")
    if differences is not None:
        parts.append(
            f"Below: the other lines less {plot.lines} = {plot.against}, seed by seed (common random numbers), "
            "95 % intervals."
        )
    return figure, " ".join(parts)


def _heat(points: pd.DataFrame, plot: SweepPlot) -> tuple[Figure, str]:
    better = more_is_better(plot.y, unit_of_metric(plot.y, points))
    value = _metric_scale(plot.y, points)
    label = f"{plot.lines}, {plot.units[plot.lines]}" if plot.units.get(plot.lines) else plot.lines
    figure = heat.draw(points, _key_scale(plot, points), label, value, better)
    return figure, f"{what_is(plot.y)} Framed: the {'most' if better else 'least'}."


def _front(table: pd.DataFrame, plot: SweepPlot) -> tuple[Figure, str]:
    chosen = cells_where(table, plot.where)
    chosen = chosen[chosen.world != ANALYTIC]
    keys = keys_of(table)
    wide = chosen.pivot_table(index=keys, columns="quantity", values="value", sort=False).reset_index()
    for metric in (plot.x, plot.y):
        if metric not in wide:
            raise InputError(f"figure sweep: {metric}: no simulated or measured cell has it")
    shown = [key for key in keys if wide[key].nunique() > 1]
    short = {key: key.rpartition(".")[2] for key in shown}
    names = [", ".join(f"{short[key]} {text_of(row[key])}" for key in shown) for _, row in wide.iterrows()]
    line = wide[plot.lines].map(text_of) if plot.lines else ""
    points = pd.DataFrame({"x": wide[plot.x], "y": wide[plot.y], "line": line, "name": names}).dropna()
    if points.empty:
        raise InputError(f"figure sweep: no cell has both {plot.x} and {plot.y}")
    units = [unit_of_metric(metric, chosen[chosen.quantity == metric]) for metric in (plot.x, plot.y)]
    better = (more_is_better(plot.x, units[0]), more_is_better(plot.y, units[1]))
    x = scale_of(plot.x, units[0], points.x.abs().max())
    y = scale_of(plot.y, units[1], points.y.abs().max())
    figure = front.draw(points, x, y, plot.lines, better)
    return figure, f"A dot a cell. {what_is(plot.x)} {what_is(plot.y)}"


def _key_scale(plot: SweepPlot, points: pd.DataFrame) -> Scale:
    numeric = pd.api.types.is_numeric_dtype(points.x)
    return scale_of(plot.x, plot.units.get(plot.x, ""), points.x.abs().max() if numeric else 1.0)


def _metric_scale(name: str, points: pd.DataFrame) -> Scale:
    return scale_of(name, unit_of_metric(name, points), points.value.abs().max())


def unit_of_metric(name: str, rows: pd.DataFrame) -> str:
    """Return a metric's unit as its run wrote it, or as the glossary has it."""
    said = [str(unit) for unit in rows.unit.dropna() if unit] if "unit" in rows else []
    meaning = meanings().get(name)
    return said[0] if said else meaning.unit if meaning is not None else ""


def what_is(name: str) -> str:
    """Say what a metric is, by the glossary's first sentence; empty for what it does not have."""
    meaning = meanings().get(name)
    if meaning is None:
        return ""
    first = meaning.what.partition(". ")[0].rstrip(".").replace("`", "")
    return f"{name}: {first[0].lower()}{first[1:]}."


def more_is_better(name: str, unit: str) -> bool:
    """Whether one wants more of a metric: less of times, power and memory."""
    return unit not in LESS_UNITS and not name.startswith(LESS_NAMES)
