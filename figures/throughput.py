"""System throughput against N, and a target's throughput below it: analytic curve, simulation, engine."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures.style import COLOURS, LABELS, STYLE, new_figure

SYSTEM, TARGET = "throughput", "throughput_per_target"
AXES = {SYSTEM: "tokens/s, all targets", TARGET: "tokens/s, each target"}
MARKS = {"N_full": "$N_{full}$", "N_full_measured": "$N_{full}$ measured", "N_max": "$N_{max}$"}


def draw(table: pd.DataFrame, marks: pd.DataFrame, quantities: Sequence[str] = (SYSTEM, TARGET)) -> Figure:
    """Draw a column of panels for each case, one panel for each of the `quantities`.

    `table`: one row a case, source ("analytic", "sim", "engine") and N, with the quantities in tokens/s, each with _low
    and _high (NaN where there is no interval). `marks`: one row a case with N_full and any of N_full_measured, N_max,
    colocated_tokens_per_s, standalone_tokens_per_s and error (share), NaN where unknown.
    """
    cases = list(dict.fromkeys(table.case))
    with rc_context(STYLE):
        figure = new_figure(max(4.8, 3.9 * len(cases)), 0.6 + 2.5 * len(quantities))
        panels = figure.subplots(len(quantities), len(cases), sharex="col", sharey="row", squeeze=False)
        for column, case in enumerate(cases):
            rows, lines = table[table.case == case], marks[marks.case == case].iloc[0]
            for quantity, axes in zip(quantities, panels[:, column], strict=True):
                _draw_sources(axes, rows, quantity)
                _draw_marks(axes, lines, rows.N.max())
                if quantity == TARGET:
                    _draw_baselines(axes, lines)
                if rows.N.nunique() == 1:  # else a lone N would get ticks at fractions of a target
                    axes.set_xlim(rows.N.min() - 1, rows.N.max() + 1)
            panels[0][column].set_title(case)
            panels[-1][column].set_xlabel("targets N")
        for quantity, axes in zip(quantities, panels[:, 0], strict=True):
            axes.set_ylabel(AXES[quantity])
            axes.set_ylim(0, 1.04 * axes.get_ylim()[1])  # last: it fixes the ends; a marker has room at the upper
        handles: dict[str, object] = {}
        for axes in panels.flat:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=2 if len(cases) == 1 else 3, fontsize=8,
            handlelength=1.6, columnspacing=1.0,
        )  # fmt: skip
    return figure


def _draw_sources(axes: Axes, rows: pd.DataFrame, quantity: str) -> None:
    for source in ("analytic", "sim", "engine"):
        part = rows[rows.source == source].sort_values("N")
        if part.empty:
            continue
        colour, label, values = COLOURS[source], LABELS[source], part[quantity]
        low, high = part[f"{quantity}_low"], part[f"{quantity}_high"]
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
            side = "right" if name == first else "left"  # of two marks that fall together, one stands on each side
            axes.annotate(
                f" {label} ", (N, 0.02 + 0.07 * (place == 1)), xycoords=("data", "axes fraction"), ha=side, fontsize=8,
                color="#555555",
            )  # fmt: skip
    if math.isfinite(lines.get("error", math.nan)):
        axes.annotate(f"error {lines['error']:.1%}", (0.03, 0.93), xycoords="axes fraction", fontsize=8)


def _draw_baselines(axes: Axes, lines: pd.Series) -> None:
    for name, label, style in (
        ("colocated_tokens_per_s", "co-located speculation, one device", "-."),
        ("standalone_tokens_per_s", "standalone target, no speculation", ":"),
    ):
        if math.isfinite(lines.get(name, math.nan)):
            axes.axhline(lines[name], color="#009E73", lw=1.3, ls=style, label=label)
