"""System throughput against N: analytic curve, simulation, engine."""

import math

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specfleet.figures.style import COLOURS, LABELS, STYLE, new_figure, one_legend

QUANTITY = "throughput"
MARKS = {"N_full": "$N_{full}$", "N_full_measured": "$N_{full}$ measured"}


def draw(table: pd.DataFrame, marks: pd.DataFrame) -> Figure:
    """Draw a panel for each case.

    `table`: one row a case, source ("analytic", "sim", "engine") and N, with throughput in tokens/s, its _low and its
    _high (NaN where there is no interval). `marks`: one row a case with N_full, N_full_measured and error (share), NaN
    where unknown.
    """
    cases = list(dict.fromkeys(table.case))
    with rc_context(STYLE):
        figure = new_figure(max(4.8, 3.9 * len(cases)), 3.1)
        panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for case, axes in zip(cases, panels, strict=True):
            rows = table[table.case == case]
            _draw_sources(axes, rows)
            _draw_marks(axes, marks[marks.case == case].iloc[0], rows.N.max())
            if rows.N.nunique() == 1:  # else a lone N would get ticks at fractions of a target
                axes.set_xlim(rows.N.min() - 1, rows.N.max() + 1)
            axes.set_title(case)
            axes.set_xlabel("targets N")
        panels[0].set_ylabel("tokens/s, all targets")
        panels[0].set_ylim(0, 1.04 * panels[0].get_ylim()[1])  # last: it fixes the ends; a marker has room at the upper
        one_legend(figure, panels, ncols=2 if len(cases) == 1 else 3, handlelength=1.6, columnspacing=1.0)
    return figure


def _draw_sources(axes: Axes, rows: pd.DataFrame) -> None:
    for source in ("analytic", "sim", "engine"):
        part = rows[rows.source == source].sort_values("N")
        if part.empty:
            continue
        colour, label, values = COLOURS[source], LABELS[source], part[QUANTITY]
        low, high = part[f"{QUANTITY}_low"], part[f"{QUANTITY}_high"]
        if source == "engine":
            errors = [(values - low).fillna(0).clip(lower=0), (high - values).fillna(0).clip(lower=0)]
            axes.errorbar(part.N, values, errors, fmt="o", ms=4.5, capsize=3, color=colour, label=label, zorder=3)
        else:
            axes.plot(part.N, values, color=colour, ls="--" if source == "analytic" else "-", label=label)
            axes.fill_between(part.N, low, high, color=colour, alpha=0.2, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_marks(axes: Axes, lines: pd.Series, largest_N: float) -> None:
    first = "N_full_measured" if lines.get("N_full_measured", math.nan) < lines["N_full"] else "N_full"
    for place, (name, label) in enumerate(MARKS.items()):
        N = lines.get(name, math.nan)
        if math.isfinite(N) and 0 < N <= largest_N:
            axes.axvline(N, color="#777777", lw=1, ls=":")
            # Of two marks that fall together one stands on each side, but none beyond the right end.
            side = "right" if name == first or 0.7 * largest_N < N else "left"
            axes.annotate(
                f" {label} ", (N, 0.02 + 0.07 * (place == 1)), xycoords=("data", "axes fraction"), ha=side, fontsize=8,
                color="#555555",
            )  # fmt: skip
    if math.isfinite(lines.get("error", math.nan)):
        axes.annotate(f"error {lines['error']:.1%}", (0.03, 0.93), xycoords="axes fraction", fontsize=8)
