"""Calibration: fitted step times against measured ones, and how far off they are."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from figures.style import STEP_COLOURS, STYLE, new_figure


def draw(table: pd.DataFrame) -> Figure:
    """Draw two panels. Table: step, tokens, context, quantiles_s (P10, P50, P90), fitted_s, held_out."""
    with rc_context(STYLE):
        figure = new_figure(8.0, 3.2)
        left, right = figure.subplots(1, 2)
        for step, rows in table.groupby("step"):
            low, median, high = (1000 * np.array(rows.quantiles_s.tolist())).T
            fitted = 1000 * rows.fitted_s.to_numpy()
            for held_out, marker in ((False, "o"), (True, "s")):
                chosen = rows.held_out.to_numpy() == held_out
                if not chosen.any():
                    continue
                style = {
                    "fmt": marker,
                    "ms": 4,
                    "color": STEP_COLOURS[str(step)],
                    "mec": "black" if held_out else "none",
                }
                label = f"{step}, {'held out' if held_out else 'fitted'}"
                errors = np.stack([median - low, high - median])[:, chosen]
                left.errorbar(median[chosen], fitted[chosen], xerr=errors, lw=0.8, label=label, **style)
                right.errorbar(median[chosen], 100 * (fitted / median - 1)[chosen], **style)
        limit = 1.05 * 1000 * table.fitted_s.max()
        left.plot([0, limit], [0, limit], color="#777777", lw=1, ls=":")
        left.set_xlabel("measured, ms (median; P10 to P90)")
        left.set_ylabel("fitted, ms")
        left.legend(fontsize=8)
        right.axhline(0, color="#777777", lw=1)
        right.set_xlabel("measured, ms (median)")
        right.set_ylabel("error of the fit, %")
    return figure
