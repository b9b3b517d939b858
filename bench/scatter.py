"""Predicted against measured values, a mark for each cell and a colour for each engine."""

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, StrMethodFormatter

from figures.methods import COLOURS
from figures.style import STYLE, new_figure

BAND = 0.05  # around equality


def draw(cells: Mapping[str, Sequence[tuple[float, float]]], quantity: str = "tokens a second") -> Figure:
    """Draw pairs of a measured and a predicted value by engine, on logarithmic axes.

    - `cells`: by engine, (measured, predicted) of each cell.
    """
    values = [value for pairs in cells.values() for pair in pairs for value in pair]
    low, high = 0.8 * min(values), 1.25 * max(values)
    with rc_context(STYLE):
        figure = new_figure(4.8, 4.8)
        axes = figure.subplots()
        axes.fill_between(
            [low, high], [low * (1 - BAND), high * (1 - BAND)], [low * (1 + BAND), high * (1 + BAND)],
            color="#999999", alpha=0.3, lw=0, label=f"within {BAND:.0%}",
        )  # fmt: skip
        axes.plot([low, high], [low, high], color="#444444", lw=0.8)
        for number, (engine, pairs) in enumerate(cells.items(), 1):
            measured, predicted = zip(*pairs, strict=True)
            axes.plot(measured, predicted, "o", ms=5, alpha=0.8, color=COLOURS[number], label=engine)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):  # plain numbers, and not powers of ten
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        axes.set_xlabel(f"measured {quantity}")
        axes.set_ylabel(f"predicted {quantity}")
        figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    return figure
