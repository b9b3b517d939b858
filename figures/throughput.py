"""System throughput against N, and a target's throughput below it: analytic curve, simulation, engine."""

import math

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures.style import COLOURS, LABELS, STYLE, new_figure

SYSTEM, TARGET = "throughput", "throughput_per_target"


def draw(table: pd.DataFrame, marks: pd.DataFrame) -> Figure:
    """Draw one column of two panels for each case.

    `table`: one row a case, source ("analytic", "sim", "played", "engine") and N, with throughput and
    throughput_per_target in tokens/s, each with _low and _high (NaN where there is no interval). Its column `unsteady`,
    if there: whether the runs of an engine's point disagree. `marks`: one row a case with N_full, N_max,
    colocated_tokens_per_s and standalone_tokens_per_s, NaN where unknown.
    """
    cases = list(dict.fromkeys(table.case))
    with rc_context(STYLE):
        figure = new_figure(max(4.8, 3.9 * len(cases)), 5.6)
        panels = figure.subplots(2, len(cases), sharex="col", squeeze=False)
        for column, case in enumerate(cases):
            rows = table[table.case == case]
            lines = marks[marks.case == case].iloc[0]
            for quantity, axes in ((SYSTEM, panels[0][column]), (TARGET, panels[1][column])):
                _draw_sources(axes, rows, quantity)
                _draw_marks(axes, lines, rows.N.max())
            _draw_baselines(panels[1][column], lines)
            for axes in panels[:, column]:
                axes.set_ylim(0, 1.04 * axes.get_ylim()[1])  # last: it fixes the ends; a marker has room at the upper
                if rows.N.nunique() == 1:  # else a lone N would get ticks at fractions of a target
                    axes.set_xlim(rows.N.min() - 1, rows.N.max() + 1)
            panels[0][column].set_title(case)
            panels[1][column].set_xlabel("targets N")
        panels[0][0].set_ylabel("system throughput, tokens/s")
        panels[1][0].set_ylabel("throughput of a target, tokens/s")
        handles: dict[str, object] = {}
        for axes in panels.flat:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=2 if len(cases) == 1 else 3, fontsize=8,
            handlelength=1.6, columnspacing=1.0,
        )  # fmt: skip
    return figure


def _draw_sources(axes: Axes, rows: pd.DataFrame, quantity: str) -> None:
    for source in ("analytic", "sim", "played", "engine"):
        part = rows[rows.source == source].sort_values("N")
        if part.empty:
            continue
        colour, label, values = COLOURS[source], LABELS[source], part[quantity]
        low, high = part[f"{quantity}_low"], part[f"{quantity}_high"]
        if source == "engine":
            errors = [(values - low).fillna(0).clip(lower=0), (high - values).fillna(0).clip(lower=0)]
            axes.errorbar(part.N, values, errors, fmt="o", ms=4.5, capsize=3, color=colour, label=label, zorder=3)
            _mark_unsteady(axes, part, values)
        elif source == "played":
            axes.plot(part.N, values, ls="", marker="s", ms=6.5, mfc="none", mew=1.0, color=colour, label=label)
        else:
            axes.plot(part.N, values, color=colour, ls="--" if source == "analytic" else "-", label=label)
            axes.fill_between(part.N, low, high, color=colour, alpha=0.2, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _mark_unsteady(axes: Axes, part: pd.DataFrame, values: pd.Series) -> None:
    if "unsteady" in part and (unsteady := part.unsteady.fillna(False).astype(bool)).any():
        axes.plot(
            part.N[unsteady], values[unsteady], ls="", marker="o", ms=4.5, mfc="white", mec=COLOURS["engine"],
            label="engine, unsteady host", zorder=4,
        )  # fmt: skip


def _draw_marks(axes: Axes, lines: pd.Series, largest_N: float) -> None:
    for name, label in (("N_full", "$N_{full}$"), ("N_max", "$N_{max}$")):
        N = lines[name]
        if math.isfinite(N) and 0 < N <= largest_N:
            axes.axvline(N, color="#777777", lw=1, ls=":")
            # Two marks may fall together: N_full stands to the left of its line, N_max to the right.
            side = "right" if name == "N_full" else "left"
            axes.annotate(
                f" {label} ", (N, 0.02), xycoords=("data", "axes fraction"), ha=side, fontsize=8, color="#555555"
            )


def _draw_baselines(axes: Axes, lines: pd.Series) -> None:
    for name, label, style in (
        ("colocated_tokens_per_s", "co-located speculation, one device", "-."),
        ("standalone_tokens_per_s", "standalone target, no speculation", ":"),
    ):
        if math.isfinite(lines[name]):
            axes.axhline(lines[name], color="#009E73", lw=1.3, ls=style, label=label)
