"""Error budget: the share of a prediction's error that disappears when a part of the measured run is played back."""

from collections.abc import Sequence

from experiments.compare.compare import BudgetRow, paired_error
from experiments.compare.reruns import played_back
from fleet.records.metrics.measure import measure
from fleet.records.playback import PARTS, Part
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario

BUDGETED = ("rounds_per_s", "throughput")
SEEDS = 5
STEPS: tuple[tuple[Part, ...], ...] = (
    (),
    *((part,) for part in PARTS),
    *(PARTS[:count] for count in range(2, len(PARTS) + 1)),
)
"""What is played back: nothing, each part alone, then one after the other."""


def error_budget(scenario: Scenario, runs: Sequence[Run]) -> list[BudgetRow]:
    """Return the errors of a scenario's prediction for its engine runs, by what is played back.

    Raises InputError if a run's log is not from its scenario.
    """
    measured = [measure(run) for run in runs]
    rows = []
    for parts in STEPS:
        seeds = 1 if set(parts) == set(PARTS) else SEEDS
        played = [played_back(scenario, run, parts, seeds) for run in runs]
        for quantity in BUDGETED:
            values = [run[quantity].value for run in measured if quantity in run]
            error = paired_error([run.get(quantity) for run in played], values)
            if error is not None:
                rows.append(BudgetRow(quantity, parts, error))
    return rows
