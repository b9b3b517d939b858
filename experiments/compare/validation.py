"""Errors of predictions against measured runs, by cause."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from specfleet.experiments.compare.compare import (
    Comparison,
    Reruns,
    compare_metrics,
    replicate,
    simulated_reruns,
    summarise,
)
from specfleet.experiments.compare.differences import FREE, TIMED, differences, keys_apart
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.overheads import late_starts
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario

BUSY = 0.05  # share of steps that start late on a busy host


def compare_runs(first: Run, second: Run, reruns: Sequence[tuple[str, Run]]) -> Comparison:
    """Compare a simulated and a measured run; for two runs of one world, errors refer to the second.

    `reruns`: names and runs. Raises InputError for reruns of another scenario.
    """
    simulated, measured = first, second
    if first.header.world == "engine" and second.header.world == "sim":
        simulated, measured = second, first
    unlike, runs = differences(simulated, measured), with_reruns(measured, reruns)
    scenario, played, notes = simulated.header.scenario, Reruns([measure(measured)]), []
    if simulated.header.world == "engine" or (measured.header.world == "sim" and not reruns):
        if reruns:
            raise InputError("reruns: need a simulated run first, and the measured one that it predicts")
        notes = [f"both runs are of the world {first.header.world!r}: sim is the first here, engine the second"]
    elif (apart := next(keys_apart(simulated, measured, TIMED), None)) is not None:
        notes = [f"mechanism: unknown, because the scenarios differ: {apart}"]
    else:
        try:
            played, notes = simulated_reruns(scenario, runs), doubts(runs)
        except InputError as error:  # a log of several clocks, say: the comparison itself needs none
            if reruns:
                raise
            notes = [f"mechanism: unknown: {error}"]
    rows = compare_metrics(_case(measured), measure(simulated), played)
    return summarise(rows, simulated.header.profile_digest, unlike, notes)


def predict_run(measured: Run, scenario: Scenario, reruns: Sequence[tuple[str, Run]], seeds: int) -> Comparison:
    """Predict a measured run from a scenario over `seeds`, and split the error; arguments as `compare_runs`."""
    if seeds < 1:
        raise InputError(f"seeds = {seeds}: needs a whole number from 1")
    runs = with_reruns(measured, reruns)
    blind = replicate(scenario, seeds)
    rows = compare_metrics(_case(measured), blind, simulated_reruns(scenario, runs))
    return summarise(rows, resolve(scenario).profile_digest, notes=doubts(runs))


def doubts(runs: Sequence[Run]) -> list[str]:
    """Return why errors of measured runs are unknown, or not to be trusted."""
    notes = [] if all(run.header.steps for run in runs) else ["mechanism: unknown: a server's steps are not seen"]
    late = [late_starts(run) for run in runs if run.header.world == "engine" and run.header.steps]
    if late and fmean(late) >= BUSY:
        notes.append(f"{fmean(late):.0%} of the steps started late; validate on a quieter host")
    return notes


def with_reruns(measured: Run, reruns: Iterable[tuple[str, Run]]) -> list[Run]:
    """Return the runs of one scenario: the measured one, then its reruns; InputError for a run of another one.

    Times and acceptance of runs of models are their own; profiles may differ there.
    """
    runs = [measured]
    of_models = measured.header.world == "engine" and not measured.header.replayed
    for name, rerun in reruns:
        if rerun.header.world != measured.header.world:
            raise InputError(f"rerun {name}: is of the other world; name reruns of the measured run")
        apart = next(keys_apart(rerun, measured, TIMED if of_models else FREE), None)
        if apart is not None:
            raise InputError(f"rerun {name}: is of another scenario; {apart}")
        runs.append(rerun)
    return runs


def _case(measured: Run) -> dict[str, Any]:
    return {"scenario": measured.header.scenario.name, "N": measured.header.scenario.verifiers.count}
