"""The figure of a sweep: a metric along a varied key, a line for each value of another, selected from its table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from specfleet.experiments.sweep.findings import COUNT
from specfleet.experiments.sweep.sweep import COLUMNS
from specfleet.figures import devices, sweep
from specfleet.figures.style import scale_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.records.metrics.glossary import meanings
from specfleet.fleet.times.labels import warning_of

NUMBERS = ("value", "low", "high")
ANALYTIC = "analytic"  # the world of rows that equations gave


def keys_of(table: pd.DataFrame) -> list[str]:
    """Return the keys that a sweep varied."""
    return [str(name) for name in table.columns if name not in COLUMNS]


def in_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the values of keys that are quantities with a unit, such as 10ms, as numbers."""
    changed = {}
    for key in keys_of(table):
        values = [_value(key, value) for value in table[key]]
        if all(isinstance(value, (int, float)) for value in values):
            changed[key] = values
    return table.assign(**changed)


def axes_of(table: pd.DataFrame, metric: str, where: Mapping[str, str]) -> tuple[str, str]:
    """Return the key along x and that of the lines, empty for none: the first two that were varied.

    `where`: values of further keys. InputError for a metric that the table does not have, or a third key that varies.
    """
    metrics = list(dict.fromkeys(map(str, table.quantity)))
    free = [key for key in keys_of(table) if key not in where]
    if not free or table.empty:
        raise InputError("figure sweep: the table has no varied key, or no cell that succeeded")
    if metric not in metrics:
        named = shortened(metric, quoted=False)
        raise InputError(f"figure sweep: --y {named}: the table has no such metric; it has {', '.join(metrics)}")
    more = next((key for key in free[2:] if table[key].nunique(dropna=False) > 1), "")
    if more:
        raise InputError(f"figure sweep: {more} was varied, too; sweep two keys, or see specfleet report")
    return free[0], next(iter(free[1:]), "")


def points_of(table: pd.DataFrame, metric: str, x: str, lines: str) -> pd.DataFrame:
    """Return one row a cell of a metric along the key `x`: x, line, value, low, high, world, unit.

    Rows of the equations have the world "analytic" and no unit.
    """
    rows = table[table.quantity == metric].reset_index(drop=True)
    line = rows[lines].map(text_of) if lines else ""
    points = rows.assign(x=rows[x].infer_objects(), line=line, unit=rows.unit.fillna("") if "unit" in rows else "")
    return points[["x", "line", *NUMBERS, "world", "unit"]].astype(dict.fromkeys(NUMBERS, float))


def text_of(value: Any) -> str:
    """Return a value of a key as a user writes it: whole numbers without a point."""
    if pd.isna(value):
        return "none"
    if isinstance(value, (float, np.floating)):
        return f"{value:.0f}" if value == round(value) else f"{value:g}"
    return str(value)


def _value(key: str, value: Any) -> Any:
    """Return a value of a key as a number where it is one, with or without a unit; else as it is."""
    if not isinstance(value, str):
        return value
    try:
        number = quantity(value, key, share=value.endswith("%"))
        return float(value) if number is None else float(number)
    except ValueError:
        return value


def sweep_figure(
    table: pd.DataFrame, metric: str = "throughput", where: Mapping[str, str] | None = None, panels: bool = False
) -> tuple[Figure, str]:
    """Draw a metric along the first varied key, a line or a panel for each value of the second, with its caption.

    `where`: values of further keys, as `text_of` writes them. N_full is marked along the number of targets.
    """
    where = where or {}
    for key, value in where.items():
        table = table[table[key].map(text_of) == value]
    table = in_numbers(table)
    along, lines = axes_of(table, metric, where)
    points = points_of(table, metric, along, lines)
    numeric = pd.api.types.is_numeric_dtype(points.x)
    unit = "s" if along.endswith("_s") and not along.endswith("_per_s") else ""
    x = scale_of(along, unit, points.x.abs().max() if numeric else 1.0)
    y = scale_of(metric, unit_of_metric(metric, points), points.value.abs().max())
    knees = points_of(table, "N_full", along, lines) if along == COUNT else points[:0]
    figure = sweep.draw(points, x, y, lines, panels, dict(zip(knees.line, knees.value, strict=True)))
    bases = table.basis.dropna().unique() if "basis" in table else []
    warnings = [f"{text[0].upper()}{text[1:]}." for text in {warning_of(str(basis)) for basis in bases} - {""}]
    return figure, " ".join([*_caption(points, metric, where), *warnings])


def devices_figure(table: pd.DataFrame) -> tuple[Figure, str]:
    """Draw the counters of the drafters' devices and the targets' along the varied key, with the caption.

    InputError where no cell has counters, and for a second varied key.
    """
    table = in_numbers(table)
    counters = {f"measured_{side}_{name}" for side in devices.SIDES for name in devices.PANELS}
    measured = [name for name in map(str, table.quantity.unique()) if name in counters]
    if not measured:
        raise InputError(
            "figure devices: no cell has samples; only runs on a device with counters have them: "
            "specfleet sweep --world engine --power"
        )
    varied = [key for key in keys_of(table) if table[key].nunique(dropna=False) > 1]
    if len(varied) > 1:
        raise InputError(f"figure devices: {varied[1]} was varied, too; sweep one key")
    (along,) = varied or keys_of(table)[:1]
    points = pd.concat([points_of(table, name, along, "").assign(quantity=name) for name in measured])
    caption = (
        "By the devices' own counters, sampled twice a second and before drafts, for all users of a device: means over "
        "time and over the devices of a side. Bars: 95 % intervals."
    )
    return devices.draw(points, along), caption


def _caption(points: pd.DataFrame, metric: str, where: Mapping[str, str]) -> list[str]:
    """Return sentences on the cells that are drawn, the metric, and the marks."""
    conditions = ", ".join(f"{key} = {value}" for key, value in where.items())
    parts = [f"Cells with {conditions}."] if conditions else []
    parts.append(what_is(metric))
    results = points[points.world != ANALYTIC]
    if len(results):
        parts.append("Points: means over the seeds of a cell; bars and bands: 95 % intervals.")
        if results.low.isna().any():
            parts.append("Hollow: no interval, since runs are too short for one or more was offered than is carried.")
    if (points.world == ANALYTIC).any():
        parts.append("Dashed: by the equations, which leave out prefill.")
    return parts


def unit_of_metric(name: str, rows: pd.DataFrame) -> str:
    """Return a metric's unit as its run wrote it, or as the glossary has it."""
    said = [str(unit) for unit in rows.unit.dropna() if unit] if "unit" in rows else []
    meaning = meanings().get(name)
    if len(set(said)) > 1:  # each names the station that it is of
        return said[0].partition(",")[0]
    return said[0] if said else meaning.unit if meaning is not None else ""


def what_is(name: str) -> str:
    """Say what a metric is, by the glossary's first sentence; empty for what it does not have."""
    meaning = meanings().get(name)
    if meaning is None:
        return ""
    first = meaning.what.partition(". ")[0].rstrip(".").replace("`", "")
    return f"{name}: {first[0].lower()}{first[1:]}."
