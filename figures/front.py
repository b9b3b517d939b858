"""Two metrics of a sweep's cells against each other: a dot a cell, those that nothing beats joined and named."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from figures.labels import Scale, colour_of
from figures.style import STYLE, new_figure


def draw(points: pd.DataFrame, x: Scale, y: Scale, heading: str, better: tuple[bool, bool]) -> Figure:
    """Draw the dots. `points`: x, y, line (text), name (of the cell); `better`: whether more of x, of y is better."""
    with rc_context(STYLE):
        figure = new_figure(7.2, 4.8)
        axes = figure.subplots()
        for number, (line, rows) in enumerate(points.groupby("line", sort=False)):
            label = f"{heading} = {line}" if heading else None
            axes.plot(x.factor * rows.x, y.factor * rows.y, "o", ms=5, alpha=0.85, color=colour_of(number), label=label)
        border = points[unbeaten(points, better)].sort_values("x")
        axes.plot(
            x.factor * border.x, y.factor * border.y, color="#444444", lw=1, zorder=1, label="nothing beats these"
        )
        for number, row in enumerate(border.itertuples()):
            above = number % 2 == 0  # neighbours' names lie on both sides, so that they do not touch
            place, side = (x.factor * row.x, y.factor * row.y), (5, 6 if above else -12)
            axes.annotate(row.name, place, xytext=side, textcoords="offset points", fontsize=7.5, color="#444444")
        axes.set_xlabel(f"{x.label} ({'more' if better[0] else 'less'} is better)")
        axes.set_ylabel(f"{y.label} ({'more' if better[1] else 'less'} is better)")
        axes.set_xlim(0, 1.15 * x.factor * points.x.max())
        axes.set_ylim(0, 1.08 * y.factor * points.y.max())
        figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def unbeaten(points: pd.DataFrame, better: tuple[bool, bool]) -> np.ndarray:
    """Return whether no other point is at least as good in both and better in one."""
    x = points.x.to_numpy(dtype=float) * (1 if better[0] else -1)
    y = points.y.to_numpy(dtype=float) * (1 if better[1] else -1)
    at_least = (x[:, None] >= x) & (y[:, None] >= y)
    beyond = (x[:, None] > x) | (y[:, None] > y)
    return ~(at_least & beyond).any(axis=0)
