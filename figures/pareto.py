"""What a user gets against what a unit of cost gives: a dot a fleet, or a curve for each method over several loads."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfleet.figures.style import NEW_FIGURE, STYLE, Canvas, line_looks

USER, VALUE = "tokens_per_s_per_user", "million_tokens_per_cost"


def draw(table: pd.DataFrame, unit: str, least: float | None = None, canvas: Canvas = NEW_FIGURE) -> Figure:
    """Draw the simulated fleets of a plan.

    `table`: one row a fleet, with method, standing, tokens_per_s_per_user in tokens/s, million_tokens_per_cost. `unit`:
    of cost. `least`: what a user is to get, a line.
    """
    with rc_context(STYLE):
        (axes,) = canvas.panels(1, 1, 6.4, 4.6)
        for method, (colour, marker) in line_looks(table.method.unique()).items():
            fleets = table[table.method == method]
            axes.scatter(fleets[USER], fleets[VALUE], color=colour, marker=marker, label=method, linewidths=0, s=26)
        border = frontier(table[~table.standing.str.startswith("misses")])
        if len(border) > 1:
            axes.plot(border[USER], border[VALUE], color="#444444", lw=1, zorder=1, label="no other fleet beats these")
        if len(chosen := table[table.standing == "best"]):
            axes.scatter(chosen[USER], chosen[VALUE], s=170, facecolors="none", edgecolors="#D55E00", linewidths=1.8,
                         label="chosen", zorder=4, clip_on=False)  # fmt: skip
        if least is not None:
            axes.axvline(least, color="#D55E00", ls=":", lw=1.2, label="least for a user")
        _label(canvas, axes, unit)
    return axes.get_figure(root=True)


def draw_by_load(table: pd.DataFrame, unit: str, canvas: Canvas = NEW_FIGURE) -> Figure:
    """Draw methods by load.

    `table`: a row for each method and load, in the order of loads, with method, load, and as in `draw`.
    """
    with rc_context(STYLE):
        (axes,) = canvas.panels(1, 1, 6.4, 4.8)
        best = frontier(table)
        axes.plot(best[USER], best[VALUE], color="#999999", lw=6, alpha=0.25, zorder=0, solid_capstyle="round",
                  label="no other method or load beats these")  # fmt: skip
        for method, (colour, marker) in line_looks(table.method.unique()).items():
            points = table[table.method == method]
            axes.plot(points[USER], points[VALUE], color=colour, marker=marker, ms=4, label=method)
            for user, value, load in zip(points[USER], points[VALUE], points.load, strict=True):
                axes.annotate(load, (user, value), xytext=(4, 3), textcoords="offset points", fontsize=7, color=colour)
        _label(canvas, axes, unit)
    return axes.get_figure(root=True)


def labels(unit: str) -> dict[str, str]:
    """Return what both axes say, by their columns."""
    name = unit.partition(" (")[0]
    per = "unit of cost" if name == "cost" else name.removesuffix("s")
    return {USER: "tokens/s of a user (1 / mean TPOT)", VALUE: f"million tokens per {per}"}


def _label(canvas: Canvas, axes: Axes, unit: str) -> None:
    """Name both axes, which begin at 0, and the curves."""
    axes.set(xlabel=labels(unit)[USER], ylabel=labels(unit)[VALUE])
    axes.margins(x=0.1)  # for the ring
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    canvas.legend([axes], axes.get_legend_handles_labels()[0])


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Return the fleets that no other beats in both, from the slowest user on."""
    ordered = table.sort_values([USER, VALUE], ascending=False)
    return ordered[ordered[VALUE] > ordered[VALUE].cummax().shift(fill_value=-np.inf)].iloc[::-1]
