"""Draft time against the idle gap before it, and against warm-up tokens (StarSD, figures 6b and 6c)."""

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.style import COLOURS, STYLE, new_figure


def draw(idle: pd.DataFrame, warm_up: pd.DataFrame) -> Figure:
    """Draw two panels. Tables: gap_s (idle) or warm_tokens (warm_up), with mean_s, p10_s and p90_s of a whole draft."""
    with rc_context(STYLE):
        figure = new_figure(8.0, 3.0)
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_spread(left, 1000 * idle.gap_s, idle)
        left.set_xlabel("idle gap before the draft, ms")
        left.set_ylabel("draft time S(d), ms")
        _draw_spread(right, warm_up.warm_tokens, warm_up)
        right.set_xlabel("warm-up tokens after the gap")
        right.set_xticks(warm_up.warm_tokens)
        left.set_ylim(bottom=0)
        left.legend(loc="lower right", fontsize=8)
    return figure


def _draw_spread(axes: Axes, x: pd.Series, table: pd.DataFrame) -> None:
    colour = COLOURS["engine"]
    axes.fill_between(x, 1000 * table.p10_s, 1000 * table.p90_s, color=colour, alpha=0.2, lw=0, label="P10 to P90")
    axes.plot(x, 1000 * table.mean_s, "o-", ms=4, color=colour, label="mean")
