"""A cell's prediction held against its runs: what is off, what is left of it with steps played back, what is chance."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from experiments.replayed.cases import Planned
from experiments.replayed.chance import chance_of, mean_of, simulated_nearby, whole_of
from fleet.records.metrics import measure
from fleet.records.playback import MECHANISM, PARTS, playback_of
from fleet.records.run import Run
from sim.run import simulate

JUDGED = ("rounds_per_s", "wait_s")


class Outcome(msgspec.Struct, frozen=True):
    """One quantity of one cell: predicted, and in each run; `played_back`: the mean of simulations as `MECHANISM` says.

    `unexplained`: what is off where the run's links and delays are played back, too. `whole`: what an error is relative
    to; the run's own value, or for a tiny wait its round. `chance`: of a run, relative to the same. `paper`: its
    number.
    """

    case: dict[str, Any]
    quantity: str
    predicted: float
    runs: list[float]
    played_back: list[float]
    unexplained: list[float]
    whole: float
    chance: float = 0.0
    paper: float | None = None

    @property
    def measured(self) -> float:
        """The median over the runs."""
        return float(np.median(self.runs))

    @property
    def error(self) -> float:
        """Prediction against the median run."""
        return (self.predicted - self.measured) / self.whole

    @property
    def mechanism(self) -> float:
        """What is left of it where the steps and the acceptance of each run are played back, mean over the runs."""
        left = [played - run for played, run in zip(self.played_back, self.runs, strict=True)]
        return float(np.mean(left)) / self.whole

    @property
    def host(self) -> float:
        """How far the runs are apart, from the least to the largest."""
        return (max(self.runs) - min(self.runs)) / self.whole


def outcomes_of(cell: Planned, expected: Sequence[dict[str, float]], runs: Sequence[Run]) -> list[Outcome]:
    """Hold what is expected of a cell, the mean over simulations, against its runs."""
    measured = [measure(run) for run in runs]
    played = [mean_of(simulated_nearby(cell.scenario, playback_of(run, MECHANISM))) for run in runs]
    all_played = [measure(simulate(cell.scenario, playback=playback_of(run, PARTS))) for run in runs]
    found, predicted, targets = [], mean_of(expected), cell.scenario.verifiers.count
    round_s = targets / float(np.median([run["rounds_per_s"].value for run in measured]))
    for quantity in JUDGED:
        values, again = (np.array([metrics[quantity].value for metrics in each]) for each in (measured, all_played))
        whole, chance = whole_of(quantity, float(np.median(values)), round_s), chance_of(quantity, expected, targets)
        numbers = values.tolist(), [metrics[quantity] for metrics in played], (again - values).tolist()
        paper = cell.paper.get(quantity)
        found.append(Outcome(cell.case, quantity, predicted[quantity], *numbers, whole, chance, paper))
    return found
