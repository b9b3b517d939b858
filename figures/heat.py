"""A metric over two keys of a sweep: a cell a square, its value written into it, the best one framed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from figures.labels import Scale
from figures.style import STYLE, new_figure

MOST_WRITTEN = 15 * 15  # squares that still have legible values


def draw(points: pd.DataFrame, across: Scale, up: str, value: Scale, more_is_better: bool) -> Figure:
    """Draw a heat map. `points`: x, line (text) and value, one row a cell; `up`: the label of the lines' key."""
    columns = sorted(set(points.x)) if pd.api.types.is_numeric_dtype(points.x) else list(dict.fromkeys(points.x))
    rows = list(dict.fromkeys(points.line))
    heights = np.full((len(rows), len(columns)), np.nan)
    for point in points.itertuples():
        heights[rows.index(point.line), columns.index(point.x)] = value.factor * point.value
    with rc_context(STYLE):
        figure = new_figure(min(12.0, 2.6 + 0.62 * len(columns)), min(10.0, 1.5 + 0.42 * len(rows)))
        axes = figure.subplots()
        axes.grid(visible=False)
        image = axes.imshow(heights, origin="lower", aspect="auto", cmap="viridis")
        figure.colorbar(image, ax=axes, label=value.label)
        axes.set_xticks(range(len(columns)), [_short(column, across.factor) for column in columns])
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(across.label)
        axes.set_ylabel(up)
        if heights.size <= MOST_WRITTEN:
            middle = (np.nanmin(heights) + np.nanmax(heights)) / 2
            for (row, column), height in np.ndenumerate(heights):
                if not np.isnan(height):
                    colour = "white" if height < middle else "black"
                    axes.text(column, row, f"{height:.3g}", ha="center", va="center", fontsize=7.5, color=colour)
        row, column = best(heights, more_is_better)
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec="#D55E00", lw=2.2))
    return figure


def best(heights: np.ndarray, more_is_better: bool) -> Sequence[int]:
    """Return row and column of the largest value, or of the smallest; NaN is none."""
    place = np.nanargmax(heights) if more_is_better else np.nanargmin(heights)
    return [int(number) for number in np.unravel_index(place, heights.shape)]


def _short(value: object, factor: float) -> str:
    return f"{factor * value:g}" if isinstance(value, (int, float, np.number)) else str(value)
