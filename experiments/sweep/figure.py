"""The figure of a sweep: a metric along a varied key, lines and panels for those of two others, from its table."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from specfleet.experiments.console.printing import value_label
from specfleet.experiments.sweep.findings import COUNT, STANDALONE
from specfleet.experiments.sweep.sweep import COLUMNS, NUMBERS
from specfleet.figures import sweep
from specfleet.figures.style import NEW_FIGURE, Canvas, Drawn, scale_of
from specfleet.figures.sweep import ANALYTIC, MARKS, PLAIN
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.records.metrics.glossary import meanings
from specfleet.fleet.times.labels import warning_of
from specfleet.meaning.entries import axis_label

PER_TARGET = "throughput_per_target"
SIDES = {"drafter": "drafters' devices", "target": "targets' devices"}
KNEES = {"N_full": "N_full, targets that keep the drafter busy", "N_max": "N_max, most targets at which each gains"}
COUNTERS = {"clock_mhz": "graphics clock, MHz", "power_w": "power, W", "utilisation": "utilisation, share of time"}


def keys_of(table: pd.DataFrame) -> list[str]:
    """Return the keys that a sweep varied."""
    return [str(name) for name in table.columns if name not in COLUMNS]


def in_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the values of keys that are quantities with a unit, such as 10ms, as numbers."""
    read = ((key, [in_unit(key, value) for value in table[key]]) for key in keys_of(table))
    return table.assign(**{key: part for key, part in read if all(isinstance(value, (int, float)) for value in part)})


def axes_of(table: pd.DataFrame, metric: str, where: Mapping[str, str], panels: bool = False) -> tuple[str, str, str]:
    """Return the keys along x, of the lines and of the panels, empty for none: the first three that were varied.

    `where`: values of further keys. `panels`: whether the second key has panels, not lines. InputError for a metric
    that the table does not have, or a fourth key that varies.
    """
    metrics = list(dict.fromkeys(map(str, table.quantity)))
    free = [key for key in keys_of(table) if key not in where]
    if not free or table.empty:
        raise InputError("figure sweep: the table has no varied key, or no cell that succeeded")
    if metric not in metrics:
        named = shortened(metric, quoted=False)
        raise InputError(f"figure sweep: --y {named}: the table has no such metric; it has {', '.join(metrics)}")
    if more := next((key for key in free[3:] if table[key].nunique(dropna=False) > 1), ""):
        raise InputError(f"figure sweep: {more} was varied, too; sweep three keys, or see specfleet report")
    x, second, third = (*free[:3], "", "")[:3]
    return (x, third, second) if panels else (x, second, third)


def points_of(table: pd.DataFrame, metric: str, x: str, line: str = "", panel: str = "") -> pd.DataFrame:
    """Return one row a cell of a metric along the key `x`: x, line, panel, value, low, high, world, unit.

    Rows of the equations have the world "analytic" and no unit.
    """
    rows = table[table.quantity == metric].reset_index(drop=True)
    texts = {name: rows[key].map(text_of) if key else "" for name, key in (("line", line), ("panel", panel))}
    values = rows[x].infer_objects()
    values = values.map(text_of) if values.dtype == bool or values.isna().any() else values
    points = rows.assign(x=values, unit=rows.unit.fillna("") if "unit" in rows else "", **texts)
    return points[["x", *texts, *NUMBERS, "world", "unit"]].astype(dict.fromkeys(NUMBERS, float))


def text_of(value: Any) -> str:
    """Return a value of a key as a user writes it: whole numbers without a point."""
    if pd.isna(value):
        return "none"
    if isinstance(value, (float, np.floating)):
        return f"{value:.0f}" if value == round(value) else f"{value:g}"
    return value_label(value)


def in_unit(key: str, value: Any) -> Any:
    """Return a value of a key as a number where it is one, with or without a unit; else as it is."""
    with suppress(ValueError):
        if isinstance(value, str):
            number = quantity(value, key, share=value.endswith("%"))
            return float(value) if number is None else number
    return value


def sweep_figure(
    table: pd.DataFrame, metric: str = "throughput", where: Mapping[str, str] | None = None, panels: bool = False,
    canvas: Canvas = NEW_FIGURE,
) -> Drawn:  # fmt: skip
    """Draw a metric along the first varied key, a line for each value of the second, a panel for each of the third.

    `where`: values of further keys, as `text_of` writes them. `panels`: the second has panels and the third lines.
    N_full and N_max are marked along the number of targets, and no speculation along depths.
    """
    for key, value in (where := where or {}).items():
        table = table[table[key].map(text_of) == value]
    table = in_numbers(table)
    keys = axes_of(table, metric, where, panels)
    names = {}
    for part, key in zip(("line", "panel"), keys[1:], strict=True):
        table, names[part] = _named(table, key)
    points = points_of(table, metric, *keys)
    is_number = pd.api.types.is_numeric_dtype(points.x)
    x = scale_of(*axis_label(keys[0]), points.x.abs().max() if is_number else 1.0)
    y = scale_of(axis_label(metric)[0], unit_of_metric(metric, points), points.value.abs().max())
    if keys[0] == COUNT and is_number:
        for name in MARKS:
            knees = points_of(table, name, *keys).assign(world=name).drop_duplicates(["line", "panel"])
            knees = knees[knees.value >= points.x.min()]
            points = pd.concat([points, knees.assign(x=knees.value, value=np.nan)])
    elif keys[0].endswith(".depth"):
        points = pd.concat([points, _plain(table, metric, keys, points)])
    points[[*NUMBERS]] *= y[1]
    if is_number:
        points["x"] *= x[1]
    labels = {"x": x[0], "value": y[0], **names}
    bases = table.basis.dropna().unique() if "basis" in table else []
    warnings = [f"{text[0].upper()}{text[1:]}." for text in {warning_of(str(basis)) for basis in bases} - {""}]
    caption = " ".join([*filter(None, _caption(points, metric, where, _left_out(table))), *warnings])
    return Drawn(sweep.draw(points, labels, canvas), caption, points.drop(columns="unit"), labels)


def _named(table: pd.DataFrame, key: str) -> tuple[pd.DataFrame, str]:
    """Return the table with a key's values as texts, in the unit of its label, and that."""
    if key == "drafters.count":
        names = {count: f"{text_of(count)} drafter{'s' * (count != 1)}" for count in table[key]} | {0: "no speculation"}
        return table.assign(**{key: table[key].map(names)}), "drafters"
    if not key or not pd.api.types.is_numeric_dtype(table[key]) or pd.api.types.is_bool_dtype(table[key]):
        return table, axis_label(key)[0] if key else ""
    label, factor = scale_of(*axis_label(key), table[key].abs().max())
    return table.assign(**{key: (table[key] * factor).map(text_of)}), label.removesuffix(", share")


def _plain(table: pd.DataFrame, metric: str, keys: tuple[str, str, str], points: pd.DataFrame) -> pd.DataFrame:
    """Return what each line has without speculation: its value at depth 0, else plain decoding by the equations."""
    levels, places = points[(points.x == 0) & (points.world != ANALYTIC)], ["x", "line", "panel"]
    if levels.empty and metric in ("throughput", PER_TARGET):
        rows = table[table.world == ANALYTIC]
        names = STANDALONE, metric, PER_TARGET
        alone, whole, part = (points_of(rows, name, *keys).set_index(places).value for name in names)
        levels = (alone * whole / part).reset_index()
    nothing = dict.fromkeys(("x", "low", "high"), np.nan)
    return levels.drop_duplicates(places[1:]).assign(**nothing, world=PLAIN)


def devices_figure(table: pd.DataFrame, canvas: Canvas = NEW_FIGURE) -> Drawn:
    """Draw counters of the drafters' devices and the targets' along the varied key, a panel each (StarSD, 6 and 7).

    InputError where no cell has counters, and for a second varied key.
    """
    table = in_numbers(table)
    places = {f"measured_{side}_{name}": {"panel": panel, "line": line}
              for name, panel in COUNTERS.items() for side, line in SIDES.items()}  # fmt: skip
    if not (measured := [name for name in places if (table.quantity == name).any()]):
        raise InputError(
            "figure devices: no cell has samples; only runs on a device with counters have them: "
            "specfleet sweep --world engine --power"
        )
    if len(varied := [key for key in keys_of(table) if table[key].nunique(dropna=False) > 1]) > 1:
        raise InputError(f"figure devices: {varied[1]} was varied, too; sweep one key")
    (along,) = varied or keys_of(table)[:1]
    points = pd.concat([points_of(table, name, along).assign(**places[name]) for name in measured])
    labels = {"x": scale_of(*axis_label(along), 1.0)[0], "value": "", "line": "", "panel": ""}
    caption = (
        "By the devices' own counters, sampled twice a second and before drafts, for all users of a device: means over "
        "time and over the devices of a side. Bars: 95 % intervals."
    )
    return Drawn(sweep.draw(points, labels, canvas), caption, points.drop(columns="unit"), labels)


def _left_out(table: pd.DataFrame) -> str:
    """Say what the equations leave out in these cells, and how much that is at most."""
    most = table[table.world == ANALYTIC].groupby("quantity").value.max()
    slowdown, share = most.get("idle_slowdown", 1.0), most.get("prefill_share", -1.0)  # earlier versions have none
    parts = ["prefill" + f", up to {100 * share:.2g} % of a request's time" * bool(share > 0)] if share else []
    parts += [f"idle gaps, after which a draft takes up to {slowdown:.3g} times as long"] if slowdown > 1 else []
    return f", which leave out {'; and '.join(parts)}" if parts else ""


def _caption(points: pd.DataFrame, metric: str, where: Mapping[str, str], left_out: str) -> list[str]:
    """Return sentences on the cells that are drawn, the metric, the marks, and what the equations leave out."""
    conditions = ", ".join(f"{key} = {value}" for key, value in where.items())
    parts = [f"Cells with {conditions}."] * bool(conditions) + [what_is(metric)]
    results = points[~points.world.isin((ANALYTIC, PLAIN, *MARKS))]
    if len(results):
        parts.append("Points: means over the seeds of a cell; bars and bands: 95 % intervals.")
        if results.world.nunique() > 1:
            parts[-1] = "Simulation: means and 95 % intervals over seeds; engine: medians and ranges of its runs."
        if results.low.isna().any():
            parts.append("Hollow: no interval. The run is too short, or more was offered than is carried.")
    if (points.world == ANALYTIC).any():
        parts.append(f"Dashed: StarSD's equations{left_out}.")
    if marked := [said for name, said in KNEES.items() if (points.world == name).any()]:
        beyond = points.x[points.world.isin(MARKS)].max() > points.x[~points.world.isin(MARKS)].max()
        parts.append(f"Above, by the equations{', an arrow beyond the axis' * bool(beyond)}: {'; '.join(marked)}.")
    if (points.world == PLAIN).any():
        source = "depth 0" if (points.x == 0).any() else "plain decoding, by the equations"
        parts.append(f"Dash-dotted: no speculation ({source}).")
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
    mean = re.sub(r"_p\d\d_s$", "_s", name)
    if mean not in meanings():
        return ""
    first = meanings()[mean].what.partition(". ")[0].rstrip(".").replace("`", "")
    first = first if mean == name else first.partition(", the mean")[0]  # of a percentile the label says which
    return f"{axis_label(name)[0]}: {first[0] if first[1:2].isupper() else first[0].lower()}{first[1:]}."
