"""Compares predictions with measured runs, quantity by quantity, and splits their errors by cause.

A prediction differs from an engine's run for three reasons. Between steps other rules apply (the mechanism). Steps
have other times or accepted lengths than in the profile (the parameters). The host has changed since calibration (the
host: one engine run against another).
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from specfleet.experiments.compare.differences import FREE, TIMED, differences, keys_apart
from specfleet.experiments.jobs import side_by_side
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.delays import late_starts
from specfleet.fleet.records.metrics.glossary import PERCENTILES, percentile_name
from specfleet.fleet.records.metrics.intervals import CONFIDENCE, student_t_interval
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.metrics.window import Metric, with_percentiles
from specfleet.fleet.records.playback import MECHANISM, Playback, playback_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.shown import Shown
from specfleet.sim.run import simulate

COMPARED = (
    "rounds_per_s", "throughput", "load", "wait_s", "idle_gap_s", "service_s", "return_s", "acceptance_length",
    "ttft_s", "tpot_s",
    *(percentile_name(name, level) for name in ("tpot_s", "ttft_s", "wait_s", "round_s") for level in PERCENTILES),
)  # fmt: skip
"""The quantities of a comparison, those first that a prediction is judged by."""

Floats = NDArray[np.float64]
PLAYED_SEEDS = 3  # of a run that is played back: links and overhead are still drawn
STEADY = 0.01  # reruns that agree as well as this are steady, however good the prediction is
FEW = 2  # runs, of which the values say more than an interval of one degree of freedom
BUSY = 0.05  # share of steps that start late on a busy host


class PredictionError(msgspec.Struct, frozen=True):
    """Error of the predictions of a quantity, relative to the measured value.

    Keys:
        value: The mean over the engine's runs of (prediction - run) / run; of the host, as `absolute`.
        low: Lower end of its 95 % interval; NaN where there is none, as of two runs.
        high: Upper end of its 95 % interval; NaN where there is none, as of two runs.
        absolute: The mean over the engine's runs of the absolute error of one run.
        values: The error of each run.
    """

    value: float
    low: float
    high: float
    absolute: float
    values: tuple[float, ...] = ()


class ComparedQuantity(msgspec.Struct, frozen=True):
    """One quantity of one case in both worlds; `error` is (sim - engine) / engine, NaN where the engine's is zero.

    Such rows are left out of the mean. `engine` is the median of `runs`, the values of the engine's runs, where there
    are several. `mechanism`: the remaining error where `MECHANISM` of them is played back; `parameters`: the error of
    `sim`; `host`: the runs by each other.
    """

    quantity: str
    case: dict[str, Any]
    sim: float
    engine: float
    error: float
    runs: tuple[float, ...] = ()
    parameters: PredictionError | None = None
    mechanism: PredictionError | None = None
    host: PredictionError | None = None

    @property
    def steady(self) -> bool | None:
        """Whether the reruns agree well enough to measure the prediction's error; None without reruns."""
        if self.host is None or self.parameters is None:
            return None
        return self.host.absolute <= max(self.parameters.absolute, STEADY)


class Comparison(Shown, msgspec.Struct, frozen=True):
    """All rows, and the mean absolute relative error of each quantity. `profile_digest` names the predicting profile.

    `verdict`: how far off the tokens/s of one case are, and how far its runs are apart, in a line. `differences`: what
    the two runs did not share, a line each; read it before the errors. `notes`: errors that could not be computed, and
    why.
    """

    rows: list[ComparedQuantity]
    mape: dict[str, float]
    profile_digest: str = ""
    differences: list[str] = []
    notes: list[str] = []
    verdict: str = ""

    def line(self) -> str:
        """Write the verdict, the differences of the two runs, and the simulation's errors."""
        if self.verdict:
            return "; ".join([self.verdict, *(f"not shared: {difference}" for difference in self.differences)])
        unlike = "".join(f"not shared: {difference}; " for difference in self.differences)
        return f"{unlike}mean absolute error: " + ", ".join(f"{name} {value:.1%}" for name, value in self.mape.items())

    def frame(self) -> pd.DataFrame:
        """One row a quantity: quantity, what names the case, sim, engine, and the relative error."""
        rows = [(row, {"sim": row.sim, "engine": row.engine, "error": row.error}) for row in self.rows]
        return pd.DataFrame([{"quantity": row.quantity, **row.case, **values} for row, values in rows])


class Reruns(msgspec.Struct, frozen=True):
    """Metrics and percentiles of the engine's runs, one by one, and of each as `MECHANISM` plays it back."""

    engine: list[dict[str, Metric]]
    mechanism: list[dict[str, Metric]] = []


def simulated_reruns(scenario: Scenario, runs: Sequence[Run]) -> Reruns:
    """Simulate the scenario with the steps and acceptance of each of its engine runs; those of a server have none.

    Raises InputError if a run's log is not from its scenario.
    """
    seen = [run for run in runs if run.header.steps]
    return Reruns(
        engine=[with_percentiles(measure(run)) for run in runs],
        mechanism=[replicate(scenario, PLAYED_SEEDS, playback_of(run, MECHANISM)) for run in seen],
    )


def replicate(scenario: Scenario, seeds: int, playback: Playback | None = None) -> dict[str, Metric]:
    """Simulate with seeds 0, 1, ... and return the metrics' means, with intervals over the replications.

    The requests are the scenario's in each: a run that is predicted has no others.
    """
    jobs = min(os.cpu_count() or 1, seeds)
    every = [(scenario, playback, seed) for seed in range(seeds)]
    return combine(list(side_by_side(_measured, every, jobs)))


def _measured(scenario: Scenario, playback: Playback | None, seed: int) -> dict[str, Metric]:
    """Simulate with another seed for all that is drawn but the requests, which stay as they are."""
    of_requests = scenario.seed if scenario.workload.seed is None else scenario.workload.seed
    workload = msgspec.structs.replace(scenario.workload, seed=of_requests)
    redrawn = msgspec.structs.replace(scenario, seed=seed, workload=workload)
    return with_percentiles(measure(simulate(redrawn, playback)))


def compare_metrics(case: Mapping[str, Any], sim: Mapping[str, Metric], reruns: Reruns) -> list[ComparedQuantity]:
    """Return a row for every compared quantity that both worlds have, with the errors that the runs allow."""
    sim, *runs = (with_percentiles(metrics) for metrics in (sim, *reruns.engine))
    names = [name for name in COMPARED if all(name in metrics for metrics in (sim, *runs))]
    return [
        _row(name, case, sim[name], [run[name] for run in runs], [run.get(name) for run in reruns.mechanism])
        for name in names
    ]


def _row(
    quantity: str, case: Mapping[str, Any], sim: Metric, runs: Sequence[Metric], played: Sequence[Metric | None]
) -> ComparedQuantity:
    """Return the row of a quantity; where an engine's value is zero it has no errors."""
    values = np.array([metric.value for metric in runs])
    engine = float(np.median(values))
    error = (sim.value - engine) / engine if engine else math.nan
    row = ComparedQuantity(quantity, dict(case), sim.value, engine, error, tuple(values.tolist()))
    if not np.all(np.isfinite(values) & (values != 0)):
        return row
    of_played = [metric.value for metric in played if metric is not None]
    mechanism = np.array(of_played) / values - 1 if len(of_played) == len(values) else None
    return msgspec.structs.replace(
        row,
        parameters=_parameters(sim, runs, sim.value / values - 1),
        mechanism=None if mechanism is None else _error(mechanism, *student_t_interval(mechanism)),
        host=_host(values) if len(values) > 1 else None,
    )


def _error(errors: Floats, low: float, high: float) -> PredictionError:
    if len(errors) == FEW:
        low = high = math.nan
    means = float(errors.mean()), float(low), float(high), float(np.abs(errors).mean())
    return PredictionError(*means, tuple(errors.tolist()))


def _parameters(sim: Metric, runs: Sequence[Metric], errors: Floats) -> PredictionError:
    """The error of one prediction for all runs; a single run has the interval of both their own ones."""
    mean = errors.mean()
    halves = [(1 + mean) * (metric.high - metric.low) / 2 / metric.value if metric.value else math.nan
              for metric in (sim, runs[0])]  # fmt: skip
    low, high = student_t_interval(errors)
    half = np.hypot(halves[0], halves[1] if len(runs) == 1 else (high - low) / 2)
    return _error(errors, mean - half, mean + half)


def _host(values: Floats) -> PredictionError:
    """Difference of one run from another; the interval is that of the runs' standard deviation."""
    off = np.abs([run / rerun - 1 for run, rerun in permutations(values, 2)])
    freedom, outside = len(values) - 1, (1 - CONFIDENCE) / 2
    low, high = (off.mean() * np.sqrt(freedom / stats.chi2.ppf(level, freedom)) for level in (1 - outside, outside))
    return _error(off, low, high)


def summarise(
    rows: Iterable[ComparedQuantity],
    profile_digest: str = "",
    differences: Sequence[str] = (),
    notes: Sequence[str] = (),
    sides: tuple[str, str] = ("simulated", "measured"),
) -> Comparison:
    """Collect rows into a comparison with the mean absolute error of each quantity; `sides`: the words for both."""
    listed = list(rows)
    errors: dict[str, list[float]] = {}
    for row in listed:
        if np.isfinite(row.error):
            errors.setdefault(row.quantity, []).append(abs(row.error))
    mape = {name: float(np.mean(values)) for name, values in errors.items()}
    rates = [row for row in listed if row.quantity == "throughput"]
    verdict = verdict_on(rates[0], *sides) if len(rates) == 1 else ""
    return Comparison(listed, mape, profile_digest, list(differences), list(notes), verdict)


def verdict_on(row: ComparedQuantity, ours: str, theirs: str) -> str:
    """Say how far off a row of tokens/s is, beside how far its runs are apart."""
    off = f"tokens/s: {ours} {abs(row.error):.1%} {'above' if row.error > 0 else 'below'} {theirs}"
    off = f"tokens/s: {ours} and {theirs} are equal" if not row.error else off
    if row.host is None:
        return f"{off}; one run, so that the runs' own spread is unknown"
    where = "within" if abs(row.error) <= row.host.value else "beyond"
    return f"{off}, {where} the runs' own spread of {row.host.value:.1%}"


def worst(comparison: Comparison, quantity: str) -> float:
    """Return the largest absolute relative error of a quantity; 0 where the runs have none of it.

    Zero against another value is infinitely far off.
    """
    rows = [row for row in comparison.rows if row.quantity == quantity and row.sim != row.engine]
    return max((abs(row.error) if math.isfinite(row.error) else math.inf for row in rows), default=0.0)


def compare_runs(first: Run, second: Run, reruns: Sequence[tuple[str, Run]]) -> Comparison:
    """Compare a simulated and a measured run; for two runs of one world, errors refer to the second.

    `reruns`: names and runs. Raises InputError for reruns of another scenario.
    """
    simulated, measured = first, second
    if first.header.world == "engine" and second.header.world == "sim":
        simulated, measured = second, first
    unlike, runs, sides = differences(simulated, measured), with_reruns(measured, reruns), ("simulated", "measured")
    scenario, played, notes = simulated.header.scenario, Reruns([measure(measured)]), []
    if simulated.header.world == "engine" or (measured.header.world == "sim" and not reruns):
        if reruns:
            raise InputError("reruns: need a simulated run first, and the measured one that it predicts")
        notes = [f"both runs are of the world {first.header.world!r}: sim is the first here, engine the second"]
        sides = ("the first run", "the second")
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
    return summarise(rows, simulated.header.profile_digest, unlike, notes, sides)


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
    """Return the runs of one scenario: the measured one, then its reruns; InputError for others, and one named twice.

    Times and acceptance of runs of models are their own; profiles may differ there.
    """
    runs = [measured]
    of_models = measured.header.world == "engine" and not measured.header.replayed
    for name, rerun in reruns:
        if rerun.header.world != measured.header.world:
            raise InputError(f"rerun {name}: is of the other world; name reruns of the measured run")
        if apart := next(keys_apart(rerun, measured, TIMED if of_models else FREE), ""):
            raise InputError(f"rerun {name}: is of another scenario; {apart}")
        if any(rerun.table.equals(run.table) for run in runs):
            raise InputError(f"rerun {name}: is a run that is named already; name each run once")
        runs.append(rerun)
    return runs


def _case(measured: Run) -> dict[str, Any]:
    return {"scenario": measured.header.scenario.name, "N": measured.header.scenario.verifiers.count}
