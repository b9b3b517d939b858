"""What a user gets against what a unit of cost gives, a dot a fleet: the fleets that nothing beats are joined."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from specfleet.figures.style import STYLE, new_figure

KINDS = {"drafters apart": "#0072B2", "co-located": "#E69F00", "no speculation": "#444444"}
USER, VALUE = "tokens_per_s_per_user", "tokens_per_cost"


def draw(table: pd.DataFrame, unit: str, least: float | None = None) -> Figure:
    """Draw the fleets of a plan.

    `table`: one row a fleet, with kind, known ("simulated" or "equations"), standing, tokens_per_s_per_user in
    tokens/s, tokens_per_cost in tokens a unit of cost. `unit`: of cost. `least`: what a user is to get, a line.
    """
    with rc_context(STYLE):
        figure = new_figure(6.4, 4.6)
        axes = figure.subplots()
        for kind, colour in KINDS.items():
            own = table[table.kind == kind]
            for method, look in (("equations", {"alpha": 0.25, "s": 9}), ("simulated", {"alpha": 0.95, "s": 26})):
                part = own[own.method == method]
                if not part.empty:
                    label = f"{kind}, {'by equations' if method == 'equations' else 'simulated'}"
                    axes.scatter(part[USER], part[VALUE], color=colour, label=label, linewidths=0, **look)
        simulated = table[(table.method == "simulated") & (table.standing != "misses a goal")]
        border = frontier(simulated)
        axes.plot(border[USER], border[VALUE], color="#444444", lw=1.0, zorder=1, label="nothing simulated beats these")
        chosen = table[table.standing == "chosen"]
        axes.scatter(chosen[USER], chosen[VALUE], s=170, facecolors="none", edgecolors="#D55E00", linewidths=1.8,
                     label="chosen", zorder=4)  # fmt: skip
        if least is not None:
            axes.axvline(least, color="#D55E00", ls=":", lw=1.2, label="least for a user")
        axes.set_xlabel("tokens a second for a user")
        axes.set_ylabel(f"tokens for a {'unit of cost' if unit == 'cost' else unit.removesuffix('s')}")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Return the fleets that no other beats in both, from the slowest user on."""
    ordered = table.sort_values([USER, VALUE], ascending=False)
    best = np.maximum.accumulate(ordered[VALUE].to_numpy()) if len(ordered) else ordered[VALUE].to_numpy()
    keeps = ordered[VALUE].to_numpy() >= best
    return ordered[keeps].drop_duplicates(USER).iloc[::-1]
