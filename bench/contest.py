"""Contestants in turn: mean rates with 95 % intervals, and ratios to one of them taken run by run."""

from collections.abc import Mapping, Sequence

import numpy as np

from bench.harness import Row
from fleet.records.metrics.intervals import student_t_interval


def compared(rows: Mapping[str, Sequence[Row]], unit: str, base: str) -> list[Row]:
    """Return a row for each contestant.

    Args:
        rows: What each contestant's runs gave, in the order of the runs; `harness.run` returns it.
        unit: The column that is compared, a rate.
        base: The contestant that the others' rates are divided by.

    Returns:
        Mean rate, its interval, mean ratio to `base`, its interval, and the means of all other columns.
    """
    of_base = np.array([row[unit] for row in rows[base]])
    return [
        _summary(name, own, unit, np.array([row[unit] for row in own]) / of_base, base) for name, own in rows.items()
    ]


def _summary(name: str, rows: Sequence[Row], unit: str, ratios: np.ndarray, base: str) -> Row:
    rates = [row[unit] for row in rows]
    low, high = student_t_interval(rates)
    ratio_low, ratio_high = student_t_interval(ratios)
    others = {column: float(np.mean([row[column] for row in rows])) for column in rows[0] if column != unit}
    return {
        "contestant": name, unit: float(np.mean(rates)), "from": low, "to": high,
        f"times {base}": float(ratios.mean()), "ratio from": ratio_low, "ratio to": ratio_high, **others,
    }  # fmt: skip
