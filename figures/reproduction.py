"""A reproduction: the paper's number of each row against ours, one panel a quantity, coloured by kind of row."""

import math

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.style import STYLE, new_figure

KIND_COLOURS = {
    "predicted": "#0072B2",
    "estimated": "#56B4E9",
    "fitted": "#E69F00",
    "input": "#999999",
    "identity": "#CC79A7",
    "measured": "#009E73",
    "unsettled": "#D55E00",
}
ROW_INCHES = 0.21
COLUMNS = 2


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel a quantity. Table: quantity, case (text), kind, paper and ours (NaN where there is none)."""
    panels = [(str(quantity), rows) for quantity, rows in table.groupby("quantity", sort=False)]
    lines = [panels[place : place + COLUMNS] for place in range(0, len(panels), COLUMNS)]
    heights = [max(len(rows) for _, rows in line) for line in lines]
    with rc_context(STYLE):
        figure = new_figure(10.0, ROW_INCHES * sum(heights) + 0.75 * len(lines) + 0.4)
        grid = figure.add_gridspec(len(lines), COLUMNS, height_ratios=[height + 1.5 for height in heights])
        for line_number, line in enumerate(lines):
            for column, (quantity, rows) in enumerate(line):
                _draw_panel(figure.add_subplot(grid[line_number, column]), quantity, rows, heights[line_number])
        figure.legend(handles=_keys(table), loc="outside upper right", ncols=6, fontsize=8)
    return figure


def _draw_panel(axes, quantity: str, rows: pd.DataFrame, height: int) -> None:  # type: ignore[no-untyped-def]
    places = range(len(rows))
    for place, row in zip(places, rows.itertuples(), strict=True):
        if not math.isnan(row.paper) and not math.isnan(row.ours):
            axes.plot([row.paper, row.ours], [place, place], color="#bbbbbb", lw=1.2, zorder=1)
        axes.plot(row.ours, place, "o", ms=5.5, color=KIND_COLOURS[row.kind], zorder=3)
        axes.plot(row.paper, place, "D", ms=6, mfc="none", mec="black", mew=1.1, zorder=2)
    axes.set_yticks(list(places), [row.case or "all" for row in rows.itertuples()], fontsize=7)
    axes.set_ylim(height - 0.4, -0.6)
    axes.set_title(quantity, fontsize=8.5, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    low, high = axes.get_xlim()
    if low > 0:  # from zero on, so that small differences look small
        axes.set_xlim(0, 1.06 * high)


def _keys(table: pd.DataFrame) -> list[Line2D]:
    kinds = [kind for kind in KIND_COLOURS if (table.kind == kind).any()]
    ours = [Line2D([], [], marker="o", ls="", color=KIND_COLOURS[kind], label=f"ours, {kind}") for kind in kinds]
    return [Line2D([], [], marker="D", ls="", mfc="none", mec="black", label="paper"), *ours]
