"""Counters of the drafters' devices and the targets' along a key of a sweep, a panel each (StarSD, figures 6 and 7)."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from specfleet.figures.style import STYLE, Canvas, number_ticks

SIDES = {"drafter": ("#0072B2", "o-", "drafters' devices"), "target": ("#D55E00", "s--", "targets' devices")}
PANELS = {"clock_mhz": "graphics clock, MHz", "power_w": "power, W", "utilisation": "utilisation, share of time"}


def draw(points: pd.DataFrame, label_x: str, canvas: Canvas = Canvas()) -> Figure:
    """Draw a panel for each counter that there is.

    `points`: one row a cell and counter, with quantity (a metric such as measured_drafter_clock_mhz), x, value, low and
    high (NaN where there is no interval).
    """
    panels = {name: label for name, label in PANELS.items() if points.quantity.str.endswith(name).any()}
    with rc_context(STYLE):
        down = len(panels) if (canvas.width_inches or 9) < 1.6 * len(panels) else 1  # below each other in a column
        grid = canvas.panels(down, len(panels) // down, max(4.8, 3.0 * len(panels)), 3.0 * down)
        for axes, (name, label) in zip(grid.flat, panels.items(), strict=True):
            for side, (colour, look, label_of_side) in SIDES.items():
                part = points[points.quantity == f"measured_{side}_{name}"].sort_values("x")
                if part.empty:
                    continue
                errors = np.nan_to_num(np.array([part.value - part.low, part.high - part.value])).clip(min=0)
                axes.errorbar(part.x, part.value, errors, fmt=look, ms=4, capsize=2, color=colour, label=label_of_side)
            axes.set_title(label)
            axes.set_xlabel(label_x)
            axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
            if pd.api.types.is_numeric_dtype(points.x):
                number_ticks(axes, sorted(set(points.x)))
        canvas.legend(list(grid.flat), ncols=2)
    return grid[0, 0].get_figure(root=True)
