"""Selects from the table of a sweep."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from specfleet.experiments.sweep.sweep import COLUMNS
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.inputs.text import shortened

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
