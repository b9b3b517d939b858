"""What a sweep says in words: its best cell, the cells that chance does not tell from it, and the knee."""

import math
from collections.abc import Sequence

from experiments.console.printing import case_text, interval
from experiments.sweep.cell import CellResult
from fleet.records.metrics.window import Metric
from fleet.shown import number

COUNT = "verifiers.count"
MAX_NAMED = 8  # cells that a line names


def findings(cells: Sequence[CellResult], quantity: str = "throughput") -> list[str]:
    """Return lines on the cell with the largest value of a metric; none for fewer than two cells that have it."""
    having = [cell for cell in cells if quantity in cell.metrics]
    if len(having) < 2:
        return []
    best = max(having, key=lambda cell: cell.metrics[quantity].value)
    top = best.metrics[quantity]
    lines = [f"best {quantity}: {case_text(best.cell)}, {number(top.value)} {top.unit} ({interval(top)})"]
    level = [cell for cell in having if cell is not best and is_level(cell.metrics[quantity], top)]
    if level:
        lines.append(f"level with it within chance: {cells_text(level)}")
    knees = sorted({cell.analytic["N_full"] for cell in having if COUNT in cell.cell and "N_full" in cell.analytic})
    if knees:
        lines.append(f"knee: N_full = {' or '.join(f'{knee:g}' for knee in knees)} by equation (12)")
    return lines


def cells_text(cells: Sequence[CellResult]) -> str:
    """Name some cells: the values of one key, or cell by cell."""
    shown, more = cells[:MAX_NAMED], f" and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    keys = set().union(*(cell.cell for cell in cells))
    if len(keys) == 1:
        (key,) = keys
        return f"{key}={', '.join(str(cell.cell[key]) for cell in shown)}{more}"
    return "; ".join(case_text(cell.cell) for cell in shown) + more


def is_level(one: Metric, best: Metric) -> bool:
    """Whether chance may explain that one mean is below the best: their difference is within its 95 % interval.

    Both intervals are taken as independent. Without them nothing is level but an equal value.
    """
    chance = math.hypot(one.high - one.value, best.value - best.low)
    return one.value == best.value or best.value - one.value <= chance
