"""A metric along a key of a sweep, a line for each value of another, a panel for each of a third, with 95 % bands."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from specfleet.figures import style
from specfleet.figures.style import COLOURS, NEW_FIGURE, STYLE, Canvas, line_looks

ANALYTIC, PLAIN = "analytic", "no speculation"  # worlds beside the two that run, as are the knees' marks
MARKS = {"N_full": 1.2, "N_max": 0.6}  # widths of their lines
LINES = {ANALYTIC: "--", "sim": "-", "engine": "", PLAIN: "-."}
LABELS = {ANALYTIC: "equations (8)-(11)", "sim": "simulation", "engine": "engine", PLAIN: PLAIN}
GREY = "#444444"
NARROW_INCHES = 4.5  # of a figure with the names of lines in it
MAX_ACROSS, MIN_PANEL_INCHES = 4, 1.6  # panels side by side, and the width of each
ROW_POINTS, DIGIT_POINTS = 11, 5.1  # height of the numbers of a mark, width of a digit
Looks = Mapping[str, tuple[str, str]]  # colour and marker of each line


def draw(points: pd.DataFrame, labels: Mapping[str, str], canvas: Canvas = NEW_FIGURE) -> Figure:
    """Draw the lines of a sweep.

    `points`: x, line and panel (texts), value, low, high (NaN where there is no interval), world: "analytic" for
    equations, which are dashed; runs of the engine beside simulations are points; "no speculation" is a level, knees
    are marks at x. `labels`: of x, value, line and panel; panels share their scale if those have one.
    """
    curves = points[~points.world.isin((PLAIN, *MARKS))]
    names, lines = (list(dict.fromkeys(curves[name])) for name in ("panel", "line"))
    words = None if pd.api.types.is_numeric_dtype(curves.x) else list(dict.fromkeys(map(str, curves.x)))
    quantity, _, unit = labels["panel"].partition(", ")
    titles = {name: f"{quantity} = {name} {unit}".rstrip() if quantity else name for name in names}
    least_inches = max(MIN_PANEL_INCHES, 0.4 + style.LETTER_INCHES * max(map(len, titles.values())))
    room_inches = (canvas.width_inches or 99) - (1 if len(lines) > 1 else 0)  # beside the names of lines
    across = max(1, min(len(names), MAX_ACROSS, int(room_inches / least_inches)))
    size = max(7.2, 2.4 * across), 4.2 if len(names) == 1 else 3.0 * math.ceil(len(names) / across)
    looks = line_looks(lines)
    rows = max((row for row, name in enumerate(MARKS, 1) if (points.world == name).any()), default=0)  # above panels
    with rc_context(STYLE):
        panels = canvas.panels(len(names), across, *size, sharey=bool(labels["panel"]))
        for number, (name, axes) in enumerate(zip(names, panels, strict=True)):
            part = points[points.panel == name]
            heights = part[part.world.isin(("sim", "engine"))].groupby("line").value.agg(tuple)
            for place, (line, look) in enumerate(looks.items(), start=1):
                over = sum(heights.get(later) == heights.get(line) for later in lines[place:])  # equal ones hide it
                _line(axes, part[part.line == line], words, look, len(lines) == 1, over)
            _ticks(axes, curves.x[curves.panel == name], words)
            axes.set(xlabel=labels["x"], ylabel="" if number % across else labels["value"])
            axes.set_title(titles[name], fontsize=9, pad=6 + ROW_POINTS * rows)
        for number, (name, axes) in enumerate(zip(names, panels, strict=True)):
            part, (low, high) = points[points.panel == name], axes.get_ylim()  # of all panels that share it
            if low > -0.05 * high:  # begin at zero, so that small differences look small
                axes.set_ylim(0, 1.03 * high if number == 0 or not labels["panel"] else high)
            _levels(axes, part[part.world == PLAIN], looks)
            named = set[str]() if number % across else MARKS.keys() & set(points.world)
            _marks(axes, part[part.world.isin(MARKS)], looks, named)
        worlds, handles = [world for world in LABELS if (points.world == world).any()], []
        for world in worlds if len(worlds) > 1 else ():
            colour, marker = COLOURS.get(world, GREY) if len(looks) == 1 else GREY, "o" if world == "engine" else ""
            label = LABELS[world] + ", 95 % interval" * bool(not marker and points.low[points.world == world].count())
            handles.append(Line2D([], [], color=colour, ls=LINES[world], marker=marker, ms=4, label=label))
        is_narrow, is_ours = (canvas.width_inches or NARROW_INCHES) < NARROW_INCHES, canvas.axes is None
        head = f"{labels['line']} = " if labels["line"] and not is_ours else ""
        keys = [Line2D([], [], color=colour, marker=marker, ms=4, label=head + line)
                for line, (colour, marker) in looks.items() if len(lines) > 1]  # fmt: skip
        canvas.legend(panels, handles + keys * (not is_ours))
        if is_narrow and keys:  # a legend beside it takes a quarter
            panels[-1].legend(handles=keys, title=labels["line"], fontsize=8, frameon=True, edgecolor="w")
        canvas.legend(panels, keys * (is_ours and not is_narrow), labels["line"])
    return panels[0].get_figure(root=True)


def _line(
    axes: Axes, rows: pd.DataFrame, words: Sequence[str] | None, look: Sequence[str], alone: bool, over: int
) -> None:
    """Draw a line with its band, hollow where there is no interval. `over`: lines on top, which leave its edges."""
    worlds = set(rows.world)
    for world in (ANALYTIC, "sim", "engine"):
        part = rows[rows.world == world]
        if part.empty:
            continue
        part = part.assign(x=part.x if words is None else [words.index(str(value)) for value in part.x])
        places, heights, low, high = part.sort_values("x")[["x", "value", "low", "high"]].to_numpy(dtype=float).T
        colour = COLOURS[world] if alone and len(worlds) > 1 else look[0]
        if world == ANALYTIC:
            dash = {"marker": "_", "ms": 16} if len(places) == 1 else {}
            axes.plot(places, heights, color=colour, ls="--", lw=0.9, alpha=0.65, zorder=1, **dash)
            continue
        if world == "sim" or "sim" not in worlds:
            axes.plot(places, heights, color=colour, lw=(1.6 if words is None else 0.8) + 2.4 * over)
            axes.fill_between(places, low, high, color=colour, alpha=0.18 if words is None else 0, lw=0)
        if world == "engine" or "engine" not in worlds:
            bounded = ~np.isnan(low)
            dots = {"ls": "", "marker": look[1], "ms": 4 + 4 * over, "color": colour, "zorder": 3}
            errors = np.clip([heights - low, high - heights], 0, None)[:, bounded]
            axes.errorbar(places[bounded], heights[bounded], errors, elinewidth=1, capsize=2, **dots)
            axes.plot(places[~bounded], heights[~bounded], mfc="white", **dots)


def _ticks(axes: Axes, x: "pd.Series[float]", words: Sequence[str] | None) -> None:
    """Put a tick at each value, as far as they fit; words that do not fit stand aslant."""
    if words is None:
        style.number_ticks(axes, sorted(set(map(float, x))))
        return
    room_inches = 0.8 * axes.get_position().width * axes.figure.get_figwidth()
    fits = style.LETTER_INCHES * max(map(len, words)) * len(words) < room_inches
    axes.set_xticks(range(len(words)), words, **({} if fits else {"rotation": 30, "ha": "right"}))
    axes.set_xlim(-0.4, len(words) - 0.6)


def _levels(axes: Axes, levels: pd.DataFrame, looks: Looks) -> None:
    """Draw what there is without speculation, a level for each line; equal ones are one."""
    for value, lines in levels.groupby("value").line:
        colour = looks[lines.iloc[0]][0] if len(lines) == 1 < len(looks) else GREY
        axes.axhline(value, color=colour, ls=LINES[PLAIN], lw=1.2, zorder=1)


def _marks(axes: Axes, marks: pd.DataFrame, looks: Looks, named: Collection[str]) -> None:
    """Mark knees, each line in its colour, with numbers above, an arrow beyond the panel. `named`: rows with names."""
    last, place = axes.get_xlim()[1], {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
    for row, name in enumerate(MARKS if len(marks) or named else ()):
        height, letters, knees = 4 + ROW_POINTS * row, 0, marks[marks.world == name]
        if name in named:
            axes.annotate(f"$N_{{{name[2:]}}}$", (0, 1), (-4, height), textcoords="offset points",
                          xycoords="axes fraction", ha="right", fontsize=8, color=GREY, parse_math=True)  # fmt: skip
        for x, part in knees.groupby("x"):
            colours, text = [looks[line][0] if len(looks) > 1 else GREY for line in part.line], f"{x:g}"
            look = {"color": colours[0] if len(part) == 1 else GREY, "fontsize": 8, **place}
            if x > last:  # side by side
                text += "," if x < knees.x.max() else " \N{RIGHTWARDS ARROW}"
                axes.annotate(text, (last, 1), (4 + DIGIT_POINTS * letters, height), **look)
                letters += len(text)
                continue
            axes.annotate(text, (x, 1), (0, height), ha="center", **look)
            for turn, colour in enumerate(colours):
                axes.axvline(x, color=colour, lw=MARKS[name], ls=(4 * turn, (2, 4 * len(part) - 2)), zorder=0)
