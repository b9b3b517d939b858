"""What sweeps, comparisons and reproductions return: results of several runs, like those of one in `results.py`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from experiments import compare, sweep
from experiments.cell import CellResult
from experiments.draw import draw
from experiments.reproduce import rows
from experiments.terminal.printing import case_text
from specfleet.asking import asked_of
from specfleet.results import Shown


@dataclass(frozen=True, repr=False, eq=False)
class Sweep(Shown):
    """A sweep's cells, in order; `errors` tells which ones failed and why."""

    cells: list[CellResult]

    @property
    def errors(self) -> list[str]:
        """One line for each failed cell."""
        return [f"{case_text(cell.cell)}: {cell.error}" for cell in self.cells if cell.error]

    @property
    def unmet(self) -> list[str]:
        """One line for each cell and metric that is not as precise as was asked."""
        return [f"{case_text(cell.cell)}: {line}" for cell in self.cells for line in cell.unmet]

    def line(self) -> str:
        """Say how many cells there are."""
        return f"sweep of {len(self.cells)} cells" + (f", {len(self.errors)} of them failed" if self.errors else "")

    def frame(self) -> pd.DataFrame:
        """One row a cell: the varied keys, `world`, and three columns a metric: `throughput`, `throughput_low`, ...

        What the equations say, where they apply, stands in `analytic_throughput`, ... ; `basis` says what step times
        rest on (measured, stated, estimated or assumed), `overload` where a cell
        was offered more than it could carry, `error` why it failed; both are empty elsewhere.
        """
        return sweep.wide_table(self.cells)

    def figure(
        self, name: Literal["throughput", "sweep"] = "throughput", out: str | Path | None = None, **asked: Any
    ) -> Figure:
        """Draw throughput against N, where `verifiers.count` was varied; write the figure to `out` if given.

        "sweep" draws any metric along any varied key: `asked` as in `specfleet.figure`.
        """
        question = asked_of(**asked) if asked or name == "sweep" else None
        return draw(name, sweep.table(self.cells), Path(out) if out else None, question)


def _cases(rows: Iterable[Any], names: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(
        [{"quantity": row.quantity, **row.case} | {name: getattr(row, name) for name in names} for row in rows]
    )


class Comparison(Shown, compare.Comparison, frozen=True):
    """A simulated and a measured run: `rows`, and `mape`, the mean absolute relative error of each quantity.

    `differences`: what the two did not share, a line each.
    """

    def line(self) -> str:
        """Say what the two did not share, and how far off the simulation is."""
        unlike = "".join(f"not shared: {difference}; " for difference in self.differences)
        return f"{unlike}mean absolute error: " + ", ".join(f"{name} {value:.1%}" for name, value in self.mape.items())

    def frame(self) -> pd.DataFrame:
        """One row a quantity: quantity, what names the case, sim, engine, and the relative error."""
        return _cases(self.rows, ("sim", "engine", "error"))


class Reproduction(Shown, rows.Reproduction, frozen=True):
    """A paper's table or figure: `rows`, the paper's number against ours, `assumptions`, and `score`.

    `score` judges the predicted rows: how many, their mean and worst absolute error, how many claims hold.
    """

    def line(self) -> str:
        """Say what was reproduced, how well, on which assumptions."""
        assumed = f"; assumed: {'; '.join(self.assumptions)}" if self.assumptions else ""
        return f"{self.name}: {len(self.rows)} rows; {self.score.line()}{assumed}"

    def frame(self) -> pd.DataFrame:
        """One row a quantity and case: quantity, what names the case, kind, paper, ours, and the relative error."""
        return _cases(self.rows, ("kind", "paper", "ours", "error"))

    def figure(self, name: Literal["reproduction"] = "reproduction", out: str | Path | None = None) -> Figure:
        """Draw the rows, paper against ours, and write the figure to `out` if given."""
        return draw(name, self, Path(out) if out else None)
