"""Counters of the drafters' devices and the targets' along a key of a sweep, a panel each (StarSD, figures 6 and 7)."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specfleet.figures.style import STYLE, new_figure, one_legend

SIDES = {"drafter": ("#0072B2", "drafters' devices"), "target": ("#D55E00", "targets' devices")}
PANELS = {"clock_mhz": "graphics clock, MHz", "power_w": "power, W", "utilisation": "utilisation, share of time"}


def draw(points: pd.DataFrame, along: str) -> Figure:
    """Draw a panel for each counter that there is.

    `points`: one row a cell and counter, with quantity (a metric such as measured_drafter_clock_mhz), x, value, low and
    high (NaN where there is no interval). `along`: the key along x.
    """
    panels = {name: label for name, label in PANELS.items() if points.quantity.str.endswith(name).any()}
    with rc_context(STYLE):
        figure = new_figure(max(4.8, 3.0 * len(panels)), 3.0)
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (name, label) in zip(row, panels.items(), strict=True):
            for side, (colour, label_of_side) in SIDES.items():
                part = points[points.quantity == f"measured_{side}_{name}"].sort_values("x")
                if part.empty:
                    continue
                errors = np.nan_to_num(np.array([part.value - part.low, part.high - part.value])).clip(min=0)
                axes.errorbar(part.x, part.value, errors, fmt="o-", ms=4, capsize=2, color=colour, label=label_of_side)
            axes.set_title(label)
            axes.set_xlabel("targets N" if along == "verifiers.count" else along)
            axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
            if pd.api.types.is_numeric_dtype(points.x):
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        one_legend(figure, row, ncols=2)
    return figure
