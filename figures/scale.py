"""What a round costs the simulator, and how much memory it takes, over the number of targets: a line a path."""

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from figures.style import STYLE, new_figure

PATHS = {"simpy": ("SimPy", "#0072B2", "o"), "fast": ("compiled loop", "#D55E00", "s")}
PANELS = (("round_us", "processor time for a round, us"), ("peak_mb", "peak memory, MB"))


def draw(table: pd.DataFrame) -> Figure:
    """Draw two panels over N, both axes logarithmic.

    `table`: one row a size and path, with path ("simpy" or "fast"), targets, round_us in microseconds of processor
    time, peak_mb in megabytes.
    """
    with rc_context(STYLE):
        figure = new_figure(7.2, 3.2)
        for axes, (column, label) in zip(figure.subplots(1, 2), PANELS, strict=True):
            for path, part in table.groupby("path", sort=False):
                name, colour, marker = PATHS[str(path)]
                axes.plot(part.targets, part[column], marker=marker, ms=4, color=colour, label=name)
                for x, y in zip(part.targets, part[column], strict=True):
                    told, place = f"{y:,.0f}" if y >= 100 else f"{y:.2g}", (0, 6 if path == "simpy" else -11)
                    axes.annotate(
                        told, (x, y), place, textcoords="offset points", ha="center", fontsize=7, color=colour
                    )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.margins(x=0.08, y=0.18)
            axes.set_xticks(sorted(set(table.targets)), [f"{size:,}" for size in sorted(set(table.targets))])
            axes.set_xticks([], minor=True)
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_xlabel("targets, N")
            axes.set_ylabel(label)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure
