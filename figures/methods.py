"""What a user gets against what a device gives, by requests in flight: a curve for each method of speculation."""

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from specfleet.figures.labels import line_colours
from specfleet.figures.pareto import frontier
from specfleet.figures.style import STYLE, new_figure


def draw(table: pd.DataFrame) -> Figure:
    """Draw methods by load.

    `table`: a row for each method and load, with method, in_flight (requests), user and device, both in tokens/s.
    """
    with rc_context(STYLE):
        figure = new_figure(6.4, 4.8)
        axes = figure.subplots()
        best = frontier(table.rename(columns={"user": "tokens_per_s_per_user", "device": "tokens_per_cost"}))
        axes.plot(best.tokens_per_s_per_user, best.tokens_per_cost, color="#999999", lw=6, alpha=0.25, zorder=0,
                  solid_capstyle="round", label="no other method or load beats these")  # fmt: skip
        by_method = table.groupby("method", sort=False)
        for (method, own), colour in zip(by_method, line_colours(by_method.ngroups), strict=True):
            curve = own.sort_values("in_flight")
            axes.plot(curve.user, curve.device, color=colour, marker="o", ms=4, label=str(method))
            for row in curve.itertuples():
                axes.annotate(str(row.in_flight), (row.user, row.device), xytext=(4, 3), textcoords="offset points",
                              fontsize=7, color=colour)  # fmt: skip
        axes.set_xlabel("tokens a second for a user (1 / mean TPOT)")
        axes.set_ylabel("tokens a second of a device")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure
