"""The figure of a sweep: a metric along a varied key, a line for each value of another."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from specfleet.experiments.sweep.findings import COUNT
from specfleet.experiments.sweep.table import ANALYTIC, axes_of, in_numbers, keys_of, points_of, text_of
from specfleet.figures import devices, sweep
from specfleet.figures.labels import scale_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.glossary import meanings
from specfleet.fleet.times.labels import warning_of


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
