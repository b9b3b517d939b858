"""A reproduction in the shape that its paper draws: curves with bands, stacked parts, or grouped bars."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.labels import colour_of, name_lines
from figures.style import STYLE, new_figure

PANEL_INCHES = 4.2
COLUMNS = 2
LONG = 200  # points from which on a panel has the whole width
PAPER = ", paper"  # how the name of a series of the paper's own numbers ends


def draw(lines: pd.DataFrame, shape: str, x_label: str, y_label: str) -> Figure:
    """Draw a panel for each title.

    `lines`: panel, name, x, y, low and high (sequences; no band where the last two are empty), one row a series.
    `shape`: "curves", "stacked" or "grouped", in which the paper's series are diamonds.
    """
    panels = list(dict.fromkeys(lines.panel))
    long = max(map(len, lines.x)) > LONG
    columns = 1 if long else min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure = new_figure(8.4 if long else max(6.4, PANEL_INCHES * columns), (2.6 if long else 3.4) * rows)
        axes_of = figure.subplots(rows, columns, squeeze=False, sharey=shape == "stacked").flat
        for number, (axes, panel) in enumerate(zip(axes_of, panels, strict=False)):
            own = [row for row in lines.itertuples() if row.panel == panel]
            {"curves": _curves, "stacked": _stacked, "grouped": _grouped}[shape](axes, own)
            axes.set_title(panel, loc="left")
            axes.set_xlabel(x_label)
            if number % columns == 0:
                axes.set_ylabel(y_label)
        for axes in list(axes_of)[len(panels) :]:
            axes.set_axis_off()
        if shape != "curves":
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
    return figure


def _curves(axes: Axes, own: Sequence) -> None:  # type: ignore[type-arg]
    for number, one in enumerate(own):
        axes.plot(one.x, one.y, color=colour_of(number), lw=1.5)
        if len(one.low):
            axes.fill_between(one.x, one.low, one.high, color=colour_of(number), alpha=0.18, lw=0)
    axes.margins(x=0)
    name_lines(axes, [(one.name, one.y[-1], colour_of(number)) for number, one in enumerate(own)], "")


def _stacked(axes: Axes, own: Sequence) -> None:  # type: ignore[type-arg]
    floor = np.zeros(len(own[0].x))
    for number, one in enumerate(own):
        axes.bar(range(len(one.x)), one.y, 0.62, bottom=floor, color=colour_of(number), label=one.name)
        floor = floor + np.asarray(one.y)
    axes.set_xticks(range(len(own[0].x)), own[0].x)
    axes.grid(axis="x", visible=False)


def _grouped(axes: Axes, own: Sequence) -> None:  # type: ignore[type-arg]
    ours = [one for one in own if not one.name.endswith(PAPER)]
    width = 0.8 / len(ours)
    for number, one in enumerate(ours):
        places = np.arange(len(one.x)) + (number - (len(ours) - 1) / 2) * width
        axes.bar(places, one.y, 0.9 * width, color=colour_of(number), label=one.name)
        for place, height in zip(places, one.y, strict=True):
            axes.annotate(f"{height:.3g}", (place, 0.4), ha="center", fontsize=7.5, color="white")
        for paper in (other for other in own if other.name == one.name + PAPER):
            label = "the paper" if number == 0 else None
            axes.plot(places, paper.y, "D", ms=6, mfc="white", mec="black", label=label, ls="", zorder=3)
    axes.set_xticks(range(len(ours[0].x)), ours[0].x)
    axes.grid(axis="x", visible=False)
