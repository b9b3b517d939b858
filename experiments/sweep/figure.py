"""The figure of a sweep that a question asks for: lines with bands, a heat map, or two metrics against each other."""

import pandas as pd
from matplotlib.figure import Figure

from experiments.sweep.table import (
    ANALYTIC,
    Asked,
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


def sweep_figure(table: pd.DataFrame, question: Asked) -> tuple[Figure, str]:
    """Draw the chosen columns of a sweep's table, and return the figure with its caption."""
    table = in_numbers(table)
    asked = completed(table, question)
    held = "".join(f", {key} = {value}" for key, value in asked.where.items())
    if asked.against and asked.kind != "lines":
        raise InputError(f"figure sweep: --against is for --kind lines, not for {asked.kind}")
    if asked.kind == "pareto":
        figure, caption = _front(table, asked)
    else:
        points = points_of(table, asked)
        told = points[points.world != ANALYTIC]
        if asked.kind == "heat":
            figure, caption = _heat(told if len(told) else points, asked)
        else:
            figure, caption = _lines(points, asked)
    bases = table.basis.dropna().unique() if "basis" in table else []
    warnings = [f"{text[0].upper()}{text[1:]}." for text in {warning_of(str(one)) for one in bases} - {""}]
    return figure, " ".join([*([f"Cells with {held[2:]}."] if held else []), caption, *warnings])


def answer_of(table: pd.DataFrame, question: Asked) -> pd.DataFrame:
    """Return the differences that the figure shows: x, line, value, low, high; empty without `against`."""
    table = in_numbers(table)
    asked = completed(table, question)
    return differences_of(points_of(table, asked), asked.lines, asked.against) if asked.against else pd.DataFrame()


def _lines(points: pd.DataFrame, asked: Asked) -> tuple[Figure, str]:
    differences = differences_of(points, asked.lines, asked.against) if asked.against else None
    x, y = _key_scale(asked, points), _metric_scale(asked.y, points)
    figure = sweep.draw(points, x, y, asked.lines, differences, f"{asked.lines} = {asked.against}")
    told = points[points.world != ANALYTIC]
    seeds = max((len(one) for one in told.by_seed), default=0)
    over = f"means over {seeds} seeds" if seeds > 1 else "one run a cell"
    parts = [what_is(asked.y)]
    if len(told):
        parts.append(f"Points: {over}; bars and bands: 95 % intervals.")
        if told.low.isna().any():
            parts.append("Hollow: no interval, since runs are too short for one or more was offered than is carried.")
    if (points.world == ANALYTIC).any():
        parts.append("Dashed: by the equations, which leave out prefill.")
    if differences is not None:
        parts.append(
            f"Below: the other lines less {asked.lines} = {asked.against}, seed by seed (common random numbers), "
            "95 % intervals."
        )
    return figure, " ".join(parts)


def _heat(points: pd.DataFrame, asked: Asked) -> tuple[Figure, str]:
    better = more_is_better(asked.y, unit_of_metric(asked.y, points))
    value = _metric_scale(asked.y, points)
    label = f"{asked.lines}, {asked.units[asked.lines]}" if asked.units.get(asked.lines) else asked.lines
    figure = heat.draw(points, _key_scale(asked, points), label, value, better)
    return figure, f"{what_is(asked.y)} Framed: the {'most' if better else 'least'}."


def _front(table: pd.DataFrame, asked: Asked) -> tuple[Figure, str]:
    chosen = cells_where(table, asked.where)
    chosen = chosen[chosen.world != ANALYTIC]
    keys = keys_of(table)
    wide = chosen.pivot_table(index=keys, columns="quantity", values="value", sort=False).reset_index()
    for metric in (asked.x, asked.y):
        if metric not in wide:
            raise InputError(f"figure sweep: {metric}: no simulated or measured cell has it")
    shown = [key for key in keys if wide[key].nunique() > 1]
    short = {key: key.rpartition(".")[2] for key in shown}
    names = [", ".join(f"{short[key]} {text_of(row[key])}" for key in shown) for _, row in wide.iterrows()]
    line = wide[asked.lines].map(text_of) if asked.lines else ""
    points = pd.DataFrame({"x": wide[asked.x], "y": wide[asked.y], "line": line, "name": names}).dropna()
    if points.empty:
        raise InputError(f"figure sweep: no cell has both {asked.x} and {asked.y}")
    units = [unit_of_metric(metric, chosen[chosen.quantity == metric]) for metric in (asked.x, asked.y)]
    better = (more_is_better(asked.x, units[0]), more_is_better(asked.y, units[1]))
    x = scale_of(asked.x, units[0], points.x.abs().max())
    y = scale_of(asked.y, units[1], points.y.abs().max())
    figure = front.draw(points, x, y, asked.lines, better)
    return figure, f"A dot a cell. {what_is(asked.x)} {what_is(asked.y)}"


def _key_scale(asked: Asked, points: pd.DataFrame) -> Scale:
    numeric = pd.api.types.is_numeric_dtype(points.x)
    return scale_of(asked.x, asked.units.get(asked.x, ""), points.x.abs().max() if numeric else 1.0)


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
