"""Reads a sweep's table, and selects cells and a metric."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from experiments.sweep.sweep import COLUMNS, TABLE
from fleet.errors import InputError
from fleet.inputs.quantities import quantity
from fleet.inputs.text import is_file, read_text, reason, shortened

NUMBERS = ("value", "low", "high")
ANALYTIC = "analytic"  # the world of rows that equations gave


class SweepPlot(msgspec.Struct, frozen=True):
    """Axes and conditions of a figure of a sweep; keys and values are texts, as a user writes them.

    `x`: a varied key. `y`: a metric. `lines`: a varied key, a line for each of its values. `where`: values of further
    keys. `units`: of keys, by name.
    """

    x: str = ""
    y: str = "throughput"
    lines: str = ""
    where: Mapping[str, str] = {}
    units: Mapping[str, str] = {}


def read_sweep(folder: Path) -> pd.DataFrame:
    """Read the table in the folder of a sweep; InputError where it is none."""
    file = folder / TABLE
    if not is_file(file):
        raise InputError(f"{folder}: holds no {TABLE}; give the folder of `specfleet sweep --vary verifiers.count=...`")
    text = read_text(file)
    try:
        table = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=["", "nan", "NaN"])
    except (ValueError, OverflowError) as error:  # pandas' ParserError and EmptyDataError among them
        raise InputError(f"{file}: not the table of a sweep ({reason(error)})") from error
    missing = [name for name in ("world", "quantity", *NUMBERS) if name not in table]
    if missing:
        raise InputError(f"{file}: lacks the column {missing[0]!r}; give the folder of a sweep")
    for name in (*NUMBERS, "verifiers.count"):
        if name in table and not pd.api.types.is_numeric_dtype(table[name]):
            raise InputError(f"{file}: column {name!r} does not hold numbers only")
        if name in table and np.isinf(table[name].astype(float)).any():
            raise InputError(f"{file}: column {name!r} holds infinities")
    return table


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


def completed(table: pd.DataFrame, plot: SweepPlot) -> SweepPlot:
    """Fill in the open choices of a figure: the first varied key along x, the second as lines.

    Keys may leave out their first parts. InputError for what the table does not have, which lists what it has.
    """
    keys, metrics = keys_of(table), list(dict.fromkeys(map(str, table.quantity)))
    if not keys or table.empty:
        raise InputError("figure sweep: the table has no varied key, or no cell that succeeded")
    where = {_key(keys, name, "--where"): value for name, value in plot.where.items()}
    free = [key for key in keys if key not in where]
    _one_of(metrics, plot.y, "--y", "metric")
    x = _key(keys, plot.x, "--x") if plot.x else next((key for key in free if key != plot.lines), "")
    rest = [key for key in free if key != x]
    lines = _key(keys, plot.lines, "--lines") if plot.lines else next(iter(rest), "")
    if not x or lines == x:
        raise InputError(f"figure sweep: --lines {lines}: is along x already; varied: {', '.join(keys)}")
    for key in (key for key in rest if key != lines):
        values = list(dict.fromkeys(map(text_of, table[key])))
        if len(values) > 1:
            raise InputError(
                f"figure sweep: {key} was varied, too; add --where {key}=VALUE; values: {shortened(', '.join(values))}"
            )
    return msgspec.structs.replace(plot, x=x, lines=lines, where=where)


def cells_where(table: pd.DataFrame, where: Mapping[str, str]) -> pd.DataFrame:
    """Return the rows of cells with these values; InputError for a value that no cell has."""
    for key, value in where.items():
        same = table[key].map(lambda one, key=key, value=value: _alike(key, one, value))
        if not same.any():
            values = shortened(", ".join(dict.fromkeys(map(text_of, table[key]))), quoted=False)
            raise InputError(
                f"figure sweep: --where {key}={shortened(value, quoted=False)}: no cell has it; values: {values}"
            )
        table = table[same]
    return table


def points_of(table: pd.DataFrame, plot: SweepPlot) -> pd.DataFrame:
    """Return one row a cell of a metric: x, line, value, low, high, world, unit.

    `plot`: completed. Rows of the equations have the world "analytic" and no unit.
    """
    rows = cells_where(table, plot.where)
    rows = rows[rows.quantity == plot.y]
    return pd.DataFrame(
        {
            "x": rows[plot.x].tolist(),
            "line": [text_of(value) for value in rows[plot.lines]] if plot.lines else [""] * len(rows),
            **{name: rows[name].astype(float).tolist() for name in NUMBERS},
            "world": rows.world.tolist(),
            "unit": rows.unit.fillna("").tolist() if "unit" in rows else "",
        }
    )


def text_of(value: Any) -> str:
    """Return a value of a key as a user writes it: whole numbers without a point."""
    if isinstance(value, (float, np.floating)):
        return "none" if math.isnan(value) else f"{value:g}"
    return str(value)


def _alike(key: str, one: Any, other: str) -> bool:
    """Whether a value of a key is the one that a user wrote: 0.01, 1e-2 and 10ms are the same."""
    return text_of(_value(key, one)) == text_of(_value(key, other.strip()))


def _value(key: str, value: Any) -> Any:
    """Return a value of a key as a number where it is one, with or without a unit; else as it is."""
    if not isinstance(value, str):
        return value
    try:
        found = quantity(value, key, share=value.endswith("%"), whole=False)
        return float(value) if found is None else float(found)
    except ValueError:
        return value


def _key(keys: Sequence[str], name: str, option: str) -> str:
    """Return the varied key of that name, which may leave out first parts."""
    ending = [key for key in keys if key.endswith(f".{name}")]
    return name if name in keys else ending[0] if len(ending) == 1 else _one_of(keys, name, option, "varied key")


def _one_of(allowed: Sequence[str], name: str, option: str, what: str) -> str:
    if name not in allowed:
        found = f"{option} {shortened(name, quoted=False)}" if name else f"{option} is missing"
        raise InputError(f"figure sweep: {found}: the table has no such {what}; it has {', '.join(allowed)}")
    return name
