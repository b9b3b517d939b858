"""Predicted against measured throughput, one panel for all modes: on the diagonal, the prediction is right."""

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from figures.style import STYLE, new_figure

TOLERANCE = 0.1
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#444444")
MARKERS = "osD^vPX"


def draw(table: pd.DataFrame) -> Figure:
    """Draw a point a case. Table: mode, case; sim, engine, engine_low and engine_high in tokens a second."""
    with rc_context(STYLE):
        figure = new_figure(7.2, 5.0)
        axes = figure.add_subplot()
        ends = 0.85 * min(table.sim.min(), table.engine.min()), 1.15 * max(table.sim.max(), table.engine.max())
        axes.fill_between(
            ends,
            [(1 - TOLERANCE) * end for end in ends],
            [(1 + TOLERANCE) * end for end in ends],
            color="#dddddd",
            lw=0,
        )
        axes.plot(ends, ends, color="#888888", lw=1)
        for number, (mode, cases) in enumerate(table.groupby("mode", sort=False)):
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[(number // len(COLOURS)) % len(MARKERS)]
            axes.errorbar(
                cases.engine, cases.sim, xerr=[cases.engine - cases.engine_low, cases.engine_high - cases.engine],
                fmt=marker, color=colour, ms=5, elinewidth=0.8, alpha=0.85, label=str(mode),
            )  # fmt: skip
        axes.set(
            xscale="log", yscale="log", xlim=ends, ylim=ends,
            xlabel="measured throughput (tokens/s)", ylabel="predicted throughput (tokens/s)",
        )  # fmt: skip
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 6, 8)))
            axis.set_major_formatter("{x:.0f}")
            axis.set_minor_locator(NullLocator())
        axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
