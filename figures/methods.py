"""What a user gets against what a unit of cost gives, by load: a curve for each method of speculation."""

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from specfleet.figures.labels import line_colours
from specfleet.figures.pareto import USER, VALUE, frontier, label_axes
from specfleet.figures.style import STYLE, new_figure


def draw(table: pd.DataFrame, unit: str) -> Figure:
    """Draw methods by load.

    `table`: a row for each method and load, in the order of loads, with method, load, and as in `pareto.draw`.
    """
    with rc_context(STYLE):
        figure = new_figure(6.4, 4.8)
        axes = figure.subplots()
        best = frontier(table)
        axes.plot(best[USER], best[VALUE], color="#999999", lw=6, alpha=0.25, zorder=0, solid_capstyle="round",
                  label="no other method or load beats these")  # fmt: skip
        by_method = table.groupby("method", sort=False)
        for (method, points), colour in zip(by_method, line_colours(by_method.ngroups), strict=True):
            axes.plot(points[USER], points[VALUE], color=colour, marker="o", ms=4, label=str(method))
            for user, value, load in zip(points[USER], points[VALUE], points.load, strict=True):
                axes.annotate(load, (user, value), xytext=(4, 3), textcoords="offset points", fontsize=7, color=colour)
        label_axes(axes, unit)
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure
