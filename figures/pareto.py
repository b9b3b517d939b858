"""What a user gets against what a unit of cost gives, a dot a fleet: the fleets that nothing beats are joined."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfleet.figures.labels import line_colours
from specfleet.figures.style import STYLE, new_figure

USER, VALUE = "tokens_per_s_per_user", "tokens_per_cost"


def draw(table: pd.DataFrame, unit: str, least: float | None = None) -> Figure:
    """Draw the simulated fleets of a plan.

    `table`: one row a fleet, with method, standing, tokens_per_s_per_user in tokens/s, tokens_per_cost in tokens a unit
    of cost. `unit`: of cost. `least`: what a user is to get, a line.
    """
    with rc_context(STYLE):
        figure = new_figure(6.4, 4.6)
        axes = figure.subplots()
        by_method = table.groupby("method", sort=False)
        for (method, fleets), colour in zip(by_method, line_colours(by_method.ngroups), strict=True):
            axes.scatter(fleets[USER], fleets[VALUE], color=colour, label=str(method), linewidths=0, s=26)
        border = frontier(table[~table.standing.str.startswith("misses")])
        axes.plot(border[USER], border[VALUE], color="#444444", lw=1.0, zorder=1, label="no other fleet beats these")
        chosen = table[table.standing == "best"]
        axes.scatter(chosen[USER], chosen[VALUE], s=170, facecolors="none", edgecolors="#D55E00", linewidths=1.8,
                     label="chosen", zorder=4)  # fmt: skip
        if least is not None:
            axes.axvline(least, color="#D55E00", ls=":", lw=1.2, label="least for a user")
        label_axes(axes, unit)
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure


def label_axes(axes: Axes, unit: str) -> None:
    """Name both axes, which begin at 0."""
    axes.set_xlabel("tokens a second for a user (1 / mean TPOT)")
    name = unit.partition(" (")[0]
    axes.set_ylabel(f"tokens for a {'unit of cost' if name == 'cost' else name.removesuffix('s')}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Return the fleets that no other beats in both, from the slowest user on."""
    ordered = table.sort_values([USER, VALUE], ascending=False)
    best = np.maximum.accumulate(ordered[VALUE].to_numpy()) if len(ordered) else ordered[VALUE].to_numpy()
    keeps = ordered[VALUE].to_numpy() >= best
    return ordered[keeps].drop_duplicates(USER).iloc[::-1]
