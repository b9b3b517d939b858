"""What several figures label alike: axes with units, times in fitting units, and lines that carry their own names."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from scipy.optimize import isotonic_regression

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
