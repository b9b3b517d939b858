"""What `reproduce` returns; apart from the other results because papers' reproductions take a while to import."""

from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from experiments.draw import draw
from experiments.reproduce import rows


class Reproduction(rows.ReproducedRows, frozen=True):
    """A paper's table or figure: `rows`, the paper's number against ours, `assumptions`, and `score`.

    `score` judges the predicted rows: how many, their mean and worst absolute error, how many claims hold.
    """

    def figure(self, name: Literal["reproduction"] = "reproduction", out: str | Path | None = None) -> Figure:
        """Draw the rows, paper against ours, and write the figure to `out` if given."""
        return draw(name, self, Path(out) if out else None)
