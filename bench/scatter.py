"""Predicted against measured values, a mark for each cell and a colour for each engine."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, StrMethodFormatter

from specfleet.figures.methods import COLOURS
from specfleet.figures.style import STYLE, new_figure

BAND = 0.05  # around equality


class Cell(NamedTuple):
    """What was measured and predicted of a cell, and whether its own runs differ by more than 8 %."""

    measured: float
    predicted: float
    is_restless: bool


def draw(cells: Mapping[str, Sequence[Cell]], quantity: str = "tokens a second") -> Figure:
    """Draw predicted over measured values by engine, on logarithmic axes; restless cells are hollow."""
    values = [value for own in cells.values() for cell in own for value in (cell.measured, cell.predicted)]
    low, high = 0.8 * min(values), 1.25 * max(values)
    with rc_context(STYLE):
        figure = new_figure(4.8, 4.8)
        axes = figure.subplots()
        axes.fill_between(
            [low, high], [low * (1 - BAND), high * (1 - BAND)], [low * (1 + BAND), high * (1 + BAND)],
            color="#999999", alpha=0.3, lw=0, label=f"within {BAND:.0%}",
        )  # fmt: skip
        axes.plot([low, high], [low, high], color="#444444", lw=0.8)
        for number, (engine, own) in enumerate(cells.items(), 1):
            for is_restless, fill, label in ((False, COLOURS[number], engine), (True, "none", "")):
                some = [cell for cell in own if cell.is_restless == is_restless]
                measured, predicted = [cell.measured for cell in some], [cell.predicted for cell in some]
                axes.plot(measured, predicted, "o", ms=5, alpha=0.8, color=COLOURS[number], mfc=fill, label=label)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):  # plain numbers, and not powers of ten
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        axes.set_xlabel(f"measured {quantity}")
        axes.set_ylabel(f"predicted {quantity}")
        axes.plot([], [], "o", ms=5, color="#444444", mfc="none", label="two runs over 8% apart")
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure
