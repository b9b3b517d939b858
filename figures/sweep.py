"""A metric along a key of a sweep, a line or a panel for each value of another, with 95 % bands."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specfleet.figures.style import COLOURS, LABELS, STYLE, Scale, line_colours, name_lines, new_figure, one_legend

ANALYTIC = "analytic"
MAX_ACROSS = 4  # panels side by side


def draw(
    points: pd.DataFrame, x: Scale, y: Scale, heading: str = "", panels: bool = False,
    N_full: Mapping[str, float] = {},
) -> Figure:  # fmt: skip
    """Draw the lines of a sweep, in one panel or in a panel each.

    `points`: x, line (text), value, low, high (NaN where there is no interval), world ("analytic" for equations, which
    are dashed; runs of the engine beside simulations are points). `heading`: the key that lines are values of.
    `N_full`: where to mark it along x, by line.
    """
    lines = list(dict.fromkeys(points.line))
    numeric = pd.api.types.is_numeric_dtype(points.x)
    values = sorted(set(points.x)) if numeric else list(dict.fromkeys(map(str, points.x)))
    shown = [[line] for line in lines] if panels else [lines]
    with rc_context(STYLE):
        across = min(len(shown), MAX_ACROSS)
        down = math.ceil(len(shown) / across)
        figure = new_figure(max(7.2, 2.4 * across), 4.2 if len(shown) == 1 else 3.0 * down)
        grid = figure.subplots(down, across, sharey=True, squeeze=False)
        row = grid.flat[: len(shown)]
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        ends: list[tuple[str, float, str]] = []
        for axes, drawn in zip(row, shown, strict=True):
            for line, colour in zip(drawn, line_colours(len(drawn)), strict=True):
                ends.append((line, _line(axes, points[points.line == line], values, (x, y), colour, numeric), colour))
            _ticks(axes, sorted(set(points[points.line.isin(drawn)].x)) if numeric else values, x, numeric)
            axes.set_xlabel(x.label)
            if panels and heading:
                axes.set_title(f"{heading} = {drawn[0]}", fontsize=9)
        for axes in grid[:, 0]:
            axes.set_ylabel(y.label)
        _from_zero(row[0])
        for axes, drawn in zip(row, shown, strict=True):
            _mark(axes, [N_full[line] for line in drawn if line in N_full], values)
        if heading and not panels:
            name_lines(row[0], ends, heading)
        if set(points.world) >= {"sim", "engine"}:
            one_legend(figure, row, ncols=len(LABELS))
    return figure


def _mark(axes: Axes, knees: Sequence[float], values: Sequence[object]) -> None:
    """Mark where a drafter becomes fully loaded; of several lines once for each value."""
    for knee in sorted({knee for knee in knees if knee <= max(map(float, values))}):  # type: ignore[arg-type]
        axes.axvline(knee, color="#777777", lw=1, ls=":", zorder=0)
        axes.annotate(" $N_{full}$", (knee, 0.02), xycoords=("data", "axes fraction"), fontsize=8, color="#555555",
                      parse_math=True)  # fmt: skip


def _line(axes: Axes, rows: pd.DataFrame, values: Sequence[object], scales: tuple[Scale, Scale], colour: str,
          numeric: bool) -> float:  # fmt: skip
    """Draw a line with its band, hollow where there is no interval; return its height at the right end."""
    x, y = scales
    end = math.nan
    has_simulations = bool((rows.world == "sim").any())
    for world, label in LABELS.items():
        part = rows[rows.world == world]
        at = [value * x.factor if numeric else float(values.index(str(value))) for value in part.x]
        part = part.assign(place=at).sort_values("place")
        if part.empty:
            continue
        places, heights = part.place.to_numpy(), y.factor * part.value.to_numpy(dtype=float)
        low, high = (y.factor * part[name].to_numpy(dtype=float) for name in ("low", "high"))
        bounded = ~np.isnan(low)
        errors = [np.clip(heights - low, 0, None)[bounded], np.clip(high - heights, 0, None)[bounded]]
        bars = {"fmt": "o", "ms": 4, "elinewidth": 1, "capsize": 2, "zorder": 3}
        if world == ANALYTIC:
            axes.plot(places, heights, color=colour, ls="--", lw=0.9, alpha=0.65, zorder=1, label=label)
        elif world == "engine" and has_simulations:
            axes.errorbar(places[bounded], heights[bounded], errors, color=COLOURS[world], label=label, **bars)
            continue
        else:
            if numeric:
                axes.fill_between(places, low, high, color=colour, alpha=0.18, lw=0)
            axes.errorbar(places[bounded], heights[bounded], errors, color=colour, **bars)
            axes.plot(places, heights, color=colour, lw=1.6 if numeric else 0.8, label=label)
            axes.plot(places[~bounded], heights[~bounded], ls="", marker="o", ms=4.5, mfc="white", mec=colour, zorder=4)
        end = float(heights[-1])
    return end


def _from_zero(axes: Axes) -> None:
    """Begin at zero, so that small differences look small, unless values are negative."""
    low, high = axes.get_ylim()
    if low > -0.05 * high:
        axes.set_ylim(0, 1.03 * high)


def _ticks(axes: Axes, values: Sequence[object], x: Scale, numeric: bool) -> None:
    if not numeric:
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set_xlim(-0.4, len(values) - 0.6)
        return
    numbers = [float(value) * x.factor for value in values]  # type: ignore[arg-type]
    if min(numbers) > 0 and max(numbers) > 30 * min(numbers):
        axes.set_xscale("log")
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers], minor=False)
        axes.minorticks_off()
    elif len(numbers) <= 12:
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    elif all(number.is_integer() for number in numbers):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
