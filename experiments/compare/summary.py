"""The errors of many cells in one line, by where they come from: mechanism, parameters, host."""

from collections.abc import Sequence

import msgspec
import numpy as np

from experiments.compare.compare import ComparedQuantity, PredictionError


class Summary(msgspec.Struct, frozen=True):
    """Errors of one quantity over cells that were rerun, as shares: means over cells, and the worst cell.

    `mechanism` and `blind`, with `_worst`: from the cells' mean errors over their runs. `blind_one_run`: error of the
    blind prediction of one run. `host_one_run`: difference of two runs of one cell. `steady`: cells with runs that
    agree well enough to separate the prediction's error from the host's.
    """

    cells: int
    steady: int
    mechanism: float
    mechanism_worst: float
    blind: float
    blind_worst: float
    blind_one_run: float
    host_one_run: float

    @property
    def blind_over_host(self) -> float:
        """Ratio of a run's difference from its prediction to its difference from another run."""
        return self.blind_one_run / self.host_one_run if self.host_one_run else float("inf")

    def lines(self) -> list[str]:
        """Say the three errors, and how many cells are steady."""
        return [
            f"mechanism, steps and acceptance played back: {self.mechanism:.1%} (worst {self.mechanism_worst:.1%})",
            f"parameters, blind from the profile: {self.blind:.1%} (worst {self.blind_worst:.1%})",
            (
                f"host, a run against a rerun: {self.host_one_run:.1%}; a run against the blind prediction: "
                f"{self.blind_one_run:.1%}, {self.blind_over_host:.2f} times as much"
            ),
            f"{self.steady} of {self.cells} cells are steady: their reruns agree better than the prediction, or to 1 %",
        ]


def summary_of(rows: Sequence[ComparedQuantity]) -> Summary | None:
    """Return the summary of one quantity's rows; None where none of them was rerun and played back."""
    complete = [
        row for row in rows if row.mechanism is not None and row.parameters is not None and row.host is not None
    ]
    if not complete:
        return None
    mechanism, blind = (_cells([getattr(row, name) for row in complete]) for name in ("mechanism", "parameters"))
    return Summary(
        len(complete), sum(bool(row.steady) for row in complete), *mechanism, *blind,
        _one_run([row.parameters for row in complete]), _one_run([row.host for row in complete]),
    )  # fmt: skip


def _cells(errors: Sequence[PredictionError | None]) -> tuple[float, float]:
    """Mean and largest absolute value of the cells' errors."""
    values = [abs(error.value) for error in errors if error is not None]
    return (float(np.mean(values)), max(values)) if values else (float("nan"), float("nan"))


def _one_run(errors: Sequence[PredictionError | None]) -> float:
    return float(np.mean([error.absolute for error in errors if error is not None]))
