"""A metric along a key of a sweep, a line for each value of another, a panel for each of a third, with 95 % bands."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from specfleet.figures.style import (
    COLOURS, LETTER_INCHES, MARKERS, STYLE, Canvas, line_colours, name_lines, number_ticks,
)  # fmt: skip

ANALYTIC, PLAIN, N_FULL = "analytic", "no speculation", "N_full"  # worlds beside the two that run
LOOKS = {"analytic": "--", "sim": "-", "engine": "", PLAIN: "-."}
LABELS = {"analytic": "equations (8)-(11)", "sim": "simulation", "engine": "engine", PLAIN: PLAIN}
GREY = "#444444"
MAX_ACROSS, MIN_PANEL_INCHES = 4, 1.6  # panels side by side, and the width of each
WRITTEN_OUT = 4  # marks of a panel of which each is written out; of more only the first


def draw(points: pd.DataFrame, labels: Mapping[str, str], canvas: Canvas = Canvas()) -> Figure:
    """Draw the lines of a sweep.

    `points`: x, line and panel (texts), value, low, high (NaN where there is no interval), world: "analytic" for
    equations, which are dashed; runs of the engine beside simulations are points; "no speculation" is a level, "N_full"
    a mark at x. `labels`: of x, value, line and panel.
    """
    curves = points[~points.world.isin((PLAIN, N_FULL))]
    names, lines = (list(dict.fromkeys(curves[name])) for name in ("panel", "line"))
    words = None if pd.api.types.is_numeric_dtype(curves.x) else list(dict.fromkeys(map(str, curves.x)))
    across = min(len(names), MAX_ACROSS, max(1, int((canvas.width_inches or 99) / MIN_PANEL_INCHES)))
    down = math.ceil(len(names) / across)
    looks = dict(zip(lines, zip(line_colours(len(lines)), MARKERS * len(lines), strict=False), strict=True))
    with rc_context(STYLE):
        grid = canvas.panels(down, across, max(7.2, 2.4 * across), 4.2 if len(names) == 1 else 3.0 * down, sharey=True)
        for axes in grid.flat[len(names) :]:
            axes.remove()
        panels = dict(zip(names, grid.flat, strict=False))
        ends: dict[str, list[tuple[str, float, str]]] = {}
        for name, axes in panels.items():
            part = curves[curves.panel == name]
            ends[name] = [(line, _line(axes, part[part.line == line], words, *looks[line], len(lines) == 1), looks[line][0])
                          for line in part.line.unique()]  # fmt: skip
            _ticks(axes, part.x, words)
            axes.set_xlabel(labels["x"])
            if labels["panel"]:
                axes.set_title(f"{labels['panel']} = {name}", fontsize=9)
        for axes in grid[:, 0]:
            axes.set_ylabel(labels["value"])
        _from_zero(grid[0, 0])
        for name, axes in panels.items():
            marks = points[points.panel == name]
            _levels(axes, marks[marks.world == PLAIN], looks)
            _marks(axes, marks[marks.world == N_FULL], looks)
            if labels["line"] and canvas.axes is None and axes in grid[:, -1] or name == names[-1]:
                name_lines(axes, ends[name], labels["line"])
        canvas.legend(list(panels.values()), _handles(points, looks, labels["line"] if canvas.axes else ""))
    return grid[0, 0].get_figure(root=True)


def _handles(points: pd.DataFrame, looks: Mapping[str, tuple[str, str]], lines: str) -> list[Line2D]:
    """Return a legend's marks: of the worlds that are drawn if there are several, and of the lines if those have a label."""
    handles = []
    worlds = [world for world in LABELS if (points.world == world).any()]
    for world in worlds if len(worlds) > 1 else ():
        colour = COLOURS.get(world, GREY) if len(looks) == 1 else GREY
        interval = ", 95 %" if world == "sim" and points.low[points.world == world].notna().any() else ""
        marker = {"marker": "o" if len(looks) == 1 else "x", "ms": 4} if world == "engine" else {}
        handles.append(Line2D([], [], color=colour, ls=LOOKS[world], label=LABELS[world] + interval, **marker))
    for line, (colour, marker) in looks.items() if lines else ():
        handles.append(Line2D([], [], color=colour, marker=marker, ms=4, label=f"{lines} = {line}"))
    return handles


def _line(axes: Axes, rows: pd.DataFrame, words: Sequence[str] | None, colour: str, marker: str, alone: bool) -> float:
    """Draw a line with its band, hollow where there is no interval; return its height at the right end."""
    end = math.nan
    has_simulations = bool((rows.world == "sim").any())
    for world in ("analytic", "sim", "engine"):
        part = rows[rows.world == world]
        part = part.assign(x=part.x if words is None else [words.index(str(value)) for value in part.x]).sort_values("x")
        if part.empty:
            continue
        places, heights, low, high = (part[name].to_numpy(dtype=float) for name in ("x", "value", "low", "high"))
        bounded = ~np.isnan(low)
        errors = [np.clip(heights - low, 0, None)[bounded], np.clip(high - heights, 0, None)[bounded]]
        bars = {"ms": 4, "elinewidth": 1, "capsize": 2, "zorder": 3, "ls": ""}
        shade = COLOURS[world] if alone and (world == "analytic" or has_simulations) else colour
        if world == "analytic":
            axes.plot(places, heights, color=shade, ls="--", lw=0.9, alpha=0.65, zorder=1)
        elif world == "engine" and has_simulations:
            axes.errorbar(places[bounded], heights[bounded], errors, color=shade, marker="o" if alone else "x", **bars)
            continue
        else:
            if words is None:
                axes.fill_between(places, low, high, color=shade, alpha=0.18, lw=0)
            axes.errorbar(places[bounded], heights[bounded], errors, color=shade, marker=marker, **bars)
            axes.plot(places, heights, color=shade, lw=1.6 if words is None else 0.8)
            axes.plot(places[~bounded], heights[~bounded], ls="", marker=marker, ms=4.5, mfc="white", mec=shade, zorder=4)
        end = float(heights[-1])
    return end


def _from_zero(axes: Axes) -> None:
    """Begin at zero, so that small differences look small, unless values are negative."""
    low, high = axes.get_ylim()
    if low > -0.05 * high:
        axes.set_ylim(0, 1.03 * high)


def _ticks(axes: Axes, x: "pd.Series[float]", words: Sequence[str] | None) -> None:
    """Put a tick at each value, as far as they fit; words that do not fit stand aslant."""
    if words is None:
        number_ticks(axes, sorted(set(map(float, x))))
        return
    fits = LETTER_INCHES * max(map(len, words)) * len(words) < 0.8 * axes.get_position().width * axes.figure.get_figwidth()
    axes.set_xticks(range(len(words)), words, **({} if fits else {"rotation": 30, "ha": "right"}))
    axes.set_xlim(-0.4, len(words) - 0.6)


def _levels(axes: Axes, levels: pd.DataFrame, looks: Mapping[str, tuple[str, str]]) -> None:
    """Draw what there is without speculation, a level for each line; equal ones are one."""
    for value, lines in levels.groupby("value").line:
        colour = looks[lines.iloc[0]][0] if len(lines) == 1 < len(looks) else GREY
        axes.axhline(value, color=colour, ls=LOOKS[PLAIN], lw=1.2, zorder=1)


def _marks(axes: Axes, marks: pd.DataFrame, looks: Mapping[str, tuple[str, str]]) -> None:
    """Mark where a drafter becomes fully loaded, each line in its colour; the dots of equal ones alternate."""
    ordered = marks.sort_values("x", kind="stable")
    for number, (knee, line) in enumerate(zip(ordered.x, ordered.line, strict=True)):
        equal = list(ordered.line[ordered.x == knee])
        dots = (4 * equal.index(line), (2, 4 * len(equal) - 2))
        colour = looks[line][0] if len(looks) > 1 else "#555555"
        axes.axvline(knee, color=colour, lw=1.2, ls=dots, zorder=0)
        text = f" $N_{{full}}$ = {knee:g}" if number == 0 or len(ordered) <= WRITTEN_OUT else f" {knee:g}"
        share = axes.transAxes.inverted().transform(axes.transData.transform((knee, 0)))[0]
        look = {"ha": "left" if share < 0.7 else "right", "fontsize": 8, "color": colour, "parse_math": True}
        place = (knee, 0.02 + 0.05 * number)
        axes.annotate(text if share < 0.7 else f"{text.strip()} ", place, xycoords=("data", "axes fraction"), **look)
