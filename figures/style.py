"""One style for all figures: a colour a source, a caption under every plot, and what several of them label alike.

These are axes with units, times in fitting units, and lines that carry their own names.
"""

import io
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file

COLOURS = {"analytic": "#444444", "sim": "#0072B2", "engine": "#D55E00"}  # distinct for colour-blind readers too
LABELS = {"analytic": "analytic, equations (8)-(11)", "sim": "simulation, 95 %", "engine": "engine"}
STEP_COLOURS = {
    "draft": "#56B4E9",
    "verify": "#E69F00",
    "prefill": "#999999",
    "chunk": "#777777",
    "decode": "#F0E442",
    "warm_up": "#CC79A7",
    "draft_prefill": "#BBBBBB",
    "realign": "#D55E00",
}
STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
    "text.parse_math": False,  # names are texts; a mark that is a formula says so
}
CAPTION_LINE_INCHES = 0.16
NARROW_INCHES = 4.5  # legends have one column below this width


class NotebookFigure(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with rc_context(STYLE):
            self.savefig(content, format="png", dpi=100)
        return content.getvalue()


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Return an empty figure in the common style."""
    with rc_context(STYLE):
        return NotebookFigure(figsize=(width_inches, height_inches), layout="constrained")


def one_legend(figure: Figure, panels: Iterable[Axes], **look: Any) -> None:
    """Give all panels one legend, above them, in which each label stands once."""
    handles: dict[str, object] = {}
    for axes in panels:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", fontsize=8, **look)


def resize(figure: Figure, width_inches: float) -> None:
    """Give the figure that width; a narrower one is less high, but not in proportion, since texts keep their size."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width_inches, height * max(0.8, min(1.0, width_inches / width)))
    if width_inches < NARROW_INCHES:
        for legend in list(figure.legends):
            named = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
            legend.remove()
            with rc_context(STYLE):
                figure.legend(*named, loc="outside upper center", ncols=1, fontsize=8, handlelength=1.6)


def add_caption(figure: Figure, caption: str) -> None:
    """Write the caption below the figure, which grows by the lines that it takes."""
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(caption, int(width * 15))
    share = CAPTION_LINE_INCHES * (len(lines) + 0.7) / (height + CAPTION_LINE_INCHES * (len(lines) + 0.7))
    figure.set_size_inches(width, height / (1 - share))
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))
    look = {"fontsize": 8, "color": "#333333", "va": "bottom", "linespacing": 1.25, "parse_math": False}
    figure.text(0.01, 0.008, "\n".join(lines), **look)


def format_of(path: Path) -> str:
    """Return the format that the file's ending chooses.

    InputError for an unknown one, for none, for one whose program is missing, for a folder, and where no file can be
    written.
    """
    check_writable(path)
    formats = FigureCanvasBase.get_supported_filetypes()
    chosen, allowed = path.suffix[1:].lower(), ", ".join(f".{name}" for name in formats)
    if not chosen:
        raise InputError(f"{path}: the ending says the format; write {path}.png, for example; allowed: {allowed}")
    if chosen not in formats:
        raise InputError(f"{path}: figures have no format {path.suffix!r}; allowed: {allowed}")
    program = rcParams["pgf.texsystem"]
    if chosen == "pgf" and shutil.which(program) is None:
        raise InputError(f"{path}: pgf needs {program}, and it is not installed; write .pdf, for example")
    return chosen


def write(figure: Figure, path: Path) -> None:
    """Write the figure; the file's ending chooses the format. InputError for an unknown one."""
    chosen, content = format_of(path), io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(content, format=chosen, dpi=150)
    write_file(path, content.getvalue())


def save(figure: Figure, path: Path, caption: str) -> None:
    """Write the figure with its caption below."""
    add_caption(figure, caption)
    write(figure, path)


# Distinct for colour-blind readers, too.
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444", "#882255")
MIN_APART = 0.058  # of two names at the right edge, as a share of the panel's height


class Scale(NamedTuple):
    """How a quantity stands at an axis: its label with the unit, and what values are multiplied by."""

    label: str
    factor: float


def scale_of(name: str, unit: str, largest: float) -> Scale:
    """Return the label and scale of a quantity; times below a second are shown in ms.

    >>> scale_of("tpot_p99_s", "s", 0.04)
    Scale(label='tpot_p99, ms', factor=1000.0)
    """
    if unit == "s":
        bare = name.removesuffix("_s")
        return Scale(f"{bare}, ms", 1000.0) if largest < 1 else Scale(f"{bare}, s", 1.0)
    return Scale(f"{name}, {unit}" if unit else name, 1.0)


def line_colours(count: int) -> list[str]:
    """Return the colours of so many lines: distinct ones, or shades in order for more than there are."""
    if count <= len(LINE_COLOURS):
        return list(LINE_COLOURS[:count])
    return [to_hex(colormaps["viridis"](share)) for share in np.linspace(0, 0.9, count)]


def name_lines(axes: Axes, ends: Sequence[tuple[str, float, str]], heading: str) -> None:
    """Write each line's name at the right edge, level with its end, or as near as names do not touch.

    `ends`: name, height in data and colour of each line. `heading`: what the names are values of.
    """
    low, high = axes.get_ylim()
    order = sorted(range(len(ends)), key=lambda number: ends[number][1])
    heights = spread([(ends[number][1] - low) / (high - low) for number in order], MIN_APART)
    for number, height in zip(order, heights, strict=True):
        name, _, colour = ends[number]
        axes.annotate(name, (1.015, height), xycoords="axes fraction", color=colour, va="center", fontsize=8.5,
                      annotation_clip=False)  # fmt: skip
    if heights:
        place = max(max(heights) + MIN_APART, 0.0)
        axes.annotate(heading, (1.015, place), xycoords="axes fraction", color="#555555", va="center", fontsize=8,
                      annotation_clip=False)  # fmt: skip


def spread(heights: Sequence[float], least: float) -> list[float]:
    """Move ordered heights as little as needed for at least `least` between neighbours.

    >>> [round(height, 2) for height in spread([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    """
    steps = least * np.arange(len(heights))
    rising: list[float] = (isotonic_regression(heights - steps).x + steps).tolist() if len(heights) else []
    return rising
