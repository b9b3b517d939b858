"""One style for all figures: a colour a source, a caption under every plot, and what several of them label alike.

These are axes with units, times in fitting units, and legends.
"""

import io
import itertools
import math
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator

from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file

COLOURS = {"analytic": "#444444", "sim": "#0072B2", "engine": "#D55E00"}  # distinct for colour-blind readers too
STEP_COLOURS = {
    "draft": "#8CCBF2",  # light, verify darker: distinct in grey, too
    "verify": "#D55E00",
    "prefill": "#444444",
    "chunk": "#777777",
    "decode": "#F0E442",
    "warm_up": "#CC79A7",
    "draft_prefill": "#BBBBBB",
    "realign": "#0072B2",
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
    "pdf.fonttype": 42,  # fonts are embedded whole, as publishers ask
    "ps.fonttype": 42,
    "text.parse_math": False,  # names are texts; a mark that is a formula says so
}
CAPTION_LINE_INCHES = 0.16
LETTER_INCHES, GAP_INCHES = 0.065, 0.09  # of a label: its letters, and around it
MARK_INCHES = 0.4  # before a legend's label
MAX_TICKS = 12  # of values that each have a tick


class NotebookFigure(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with rc_context(STYLE):
            self.savefig(content, format="png", dpi=100)
        return content.getvalue()


class Drawn(NamedTuple):
    """A figure, its caption, what is drawn, in the units of the axes, and what its columns mean, with these units."""

    figure: Figure
    caption: str
    rows: pd.DataFrame = pd.DataFrame()
    labels: Mapping[str, str] = {}


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Return an empty figure in the common style."""
    with rc_context(STYLE):
        return NotebookFigure(figsize=(width_inches, height_inches), layout="constrained")


class Canvas(NamedTuple):
    """Where to draw: a new figure, as wide as it likes or `width_inches`, or the panel `axes` of a user's layout."""

    width_inches: float | None = None
    axes: Axes | None = None

    def panels(self, count: int, across: int, width_inches: float, height_inches: float, **look: Any) -> list[Axes]:
        """Return so many panels; a narrow figure is less high, but not in proportion, since texts keep their size.

        InputError for several panels where a user's layout has one.
        """
        if self.axes is not None:
            if count > 1:
                raise InputError(f"ax: is one panel, not {count}; leave ax out, or draw Sweep(CELLS), the cells of one")
            return [self.axes]
        width = self.width_inches or width_inches
        figure = new_figure(width, height_inches * max(0.8, min(1.0, width / width_inches)))
        grid = figure.subplots(math.ceil(count / across), across, squeeze=False, **look)
        for axes in grid.flat[count:]:
            axes.remove()
        return list(grid.flat[:count])

    def legend(self, panels: Sequence[Axes], handles: Sequence[Any], title: str = "") -> None:
        """Name what is drawn: above all panels, beside them below a title; a user's panel has names for its legend."""
        if self.axes is not None:
            for handle in handles:
                if handle.axes is None:  # of no drawing in the panel, so that its limits stay
                    self.axes.add_artist(handle)
        elif handles:
            look: dict[str, Any] = {"handles": handles, "fontsize": 8, "title_fontsize": 8, "title": title or None}
            figure, letters = panels[0].get_figure(root=True), max(len(handle.get_label()) for handle in handles)
            fitting = max(1, int(figure.get_figwidth() / (MARK_INCHES + LETTER_INCHES * letters)))
            columns, place = (1, "right center") if title else (fitting, "upper center")
            figure.legend(**look, loc=f"outside {place}", ncols=columns, handlelength=1.5, columnspacing=1.2)


NEW_FIGURE = Canvas()


@contextmanager
def resized(figure: Figure, width_inches: float) -> Iterator[None]:
    """Make a drawn figure that narrow for a while, and a little less high; its legends stand above it as one column."""
    (width, height), handles, labels = figure.get_size_inches(), [], []
    legends, figure.legends[:] = list(figure.legends), []
    for legend in legends:
        title = legend.get_title().get_text()
        handles += legend.legend_handles
        labels += [f"{title} = {text.get_text()}" if title else text.get_text() for text in legend.get_texts()]
    legend_inches = CAPTION_LINE_INCHES * len(labels)  # what is drawn keeps its room
    figure.set_size_inches(width_inches, height * max(0.9, min(1.0, width_inches / width)) + legend_inches)
    if handles:
        with rc_context(STYLE):
            figure.legend(handles, labels, fontsize=8, loc="outside upper center")
    try:
        yield
    finally:
        figure.legends[:] = legends
        figure.set_size_inches(width, height)


class FittingLocator(FixedLocator):
    """Ticks at the given places of the x axis, as far as their labels do not touch."""

    def __call__(self) -> Any:
        """Return where ticks are: the first place, and each that is far enough from the tick before it."""
        axes = self.axis.axes
        at = axes.get_xaxis_transform().transform([(place, 0.0) for place in self.locs])[:, 0] / axes.figure.dpi
        room = GAP_INCHES + LETTER_INCHES * max(len(f"{place:g}") for place in self.locs)
        kept = [0]
        for number in range(1, len(at)):
            if at[number] - at[kept[-1]] >= room:
                kept.append(number)
        return self.locs[kept]


def number_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Put ticks at values along x, rising, on a log scale if they span more than 30 times the least."""
    if min(values) > 0 and max(values) > 30 * min(values):
        axes.set_xscale("log")
        axes.minorticks_off()
    if len(values) <= MAX_TICKS:
        axes.xaxis.set_major_locator(FittingLocator(values))
    elif axes.get_xscale() == "log":
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=all(float(value).is_integer() for value in values)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


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
MARKERS = "os^DvPX*"  # tell lines apart in grey


def scale_of(name: str, unit: str, largest: float) -> tuple[str, float]:
    """Return the label of a quantity with its unit, and what values are multiplied by; short times are shown in ms.

    >>> scale_of("TPOT P99", "s", 0.04)
    ('TPOT P99, ms', 1000.0)
    """
    if unit.partition("/")[0] == "s" and largest < 1:
        return f"{name}, m{unit}", 1000.0
    return f"{name}, {unit}" if unit else name, 1.0


def line_looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each line: distinct ones, or shades in order for more than there are."""
    shades = [to_hex(colormaps["viridis"](share)) for share in np.linspace(0, 0.9, len(names))]
    colours = LINE_COLOURS if len(names) <= len(LINE_COLOURS) else shades
    return dict(zip(names, zip(colours, itertools.cycle(MARKERS), strict=False), strict=False))
