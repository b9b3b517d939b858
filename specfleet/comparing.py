"""compare, three_errors: how far predictions are off measured runs, and where that comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from experiments import compare as compare_rows
from experiments.budget import error_budget
from experiments.compare import compare_metrics, compare_reruns, summarise
from experiments.differences import busy_host, differences, keys_apart
from experiments.reruns import replicate, simulated_reruns
from fleet.errors import InputError
from fleet.records.run import Run
from fleet.scenario.changes import Changes
from fleet.scenario.settle import settle
from specfleet.arguments import count_of, flag_of
from specfleet.results import Result
from specfleet.running import read_run
from specfleet.scenario import scenario_of
from specfleet.studied import Comparison

RunGiven = Result | str | Path


def compare(first: RunGiven, second: RunGiven, *, reruns: Sequence[RunGiven] = (), budget: bool = False) -> Comparison:
    """Hold a simulated and a measured run against each other, quantity by quantity; errors refer to the measured one.

    What the two did not share comes first, as `differences`. Of two runs of the same world, errors refer to the second.
    Takes results or their files. A run of the engine is also simulated with its steps and acceptance played back, which
    leaves the error of the mechanism; `reruns` of it give the host's own, and intervals. `budget`:
    what playing back each part of the runs leaves of the error, too. Raises InputError for reruns of another scenario.

    >>> import specfleet
    >>> one = specfleet.simulate("star", workload={"requests": 20})
    >>> specfleet.compare(one, one).mape["throughput"]
    0.0
    """
    simulated, measured = map(_result_of, (first, second))
    if simulated.run.header.world == "engine" and measured.run.header.world == "sim":
        simulated, measured = measured, simulated
    case, digest = _case_of(measured), simulated.run.header.profile_digest
    unlike, runs = differences(simulated.run, measured.run), _with_reruns(measured, reruns)
    asked = bool(reruns) or flag_of(budget, "budget")
    if simulated.run.header.world == "engine" or (measured.run.header.world == "sim" and not asked):
        if asked:
            raise InputError("reruns and budget: need a simulated run first, and the measured one that it predicts")
        return _shown(summarise(compare_metrics(case, simulated.metrics, measured.metrics), digest, unlike))
    apart = next(keys_apart(simulated.run, measured.run), None)
    if apart is not None:
        note = f"mechanism: cannot be told, because the scenarios differ: {apart}"
        return _shown(summarise(compare_metrics(case, simulated.metrics, measured.metrics), digest, unlike, [note]))
    try:
        rows = compare_reruns(case, simulated.metrics, simulated_reruns(simulated.scenario, runs))
        parts, notes = error_budget(simulated.scenario, runs) if budget else [], busy_host(runs)
    except InputError as error:  # a log of several clocks, say: the comparison itself needs none
        if asked:
            raise
        note = f"mechanism: cannot be told: {error}"
        return _shown(summarise(compare_metrics(case, simulated.metrics, measured.metrics), digest, unlike, [note]))
    return _shown(msgspec.structs.replace(summarise(rows, digest, unlike, notes), budget=parts))


def three_errors(
    run: RunGiven,
    changes: Changes | None = None,
    *,
    reruns: Sequence[RunGiven] = (),
    budget: bool = False,
    seeds: int = 20,
    **keys: Any,
) -> Comparison:
    """Predict a measured run from its own scenario, and say where the error comes from, quantity by quantity.

    `mechanism`: with the run's steps and acceptance played back; `parameters`: blind, from the profile alone, over
    `seeds`; `host`: the run against its `reruns`. `budget`, `changes` and keywords as in `compare` and `simulate`; a
    run without a profile is given one so: `profile="mine.json"`. Raises InputError where the scenario names no profile,
    and for reruns of another scenario.

    >>> import specfleet
    >>> first = specfleet.simulate("star", workload={"requests": 20})
    >>> (row,) = [row for row in specfleet.three_errors(first, seeds=2).rows if row.quantity == "throughput"]
    >>> abs(row.mechanism.value) < 0.01
    True
    """
    measured = _result_of(run)
    scenario, runs = scenario_of(measured.scenario, changes, **keys), _with_reruns(measured, reruns)
    blind = replicate(scenario, count_of(seeds, "seeds"))
    rows = compare_reruns(_case_of(measured), blind, simulated_reruns(scenario, runs))
    parts = error_budget(scenario, runs) if flag_of(budget, "budget") else []
    comparison = summarise(rows, settle(scenario).profile_digest, notes=busy_host(runs))
    return _shown(msgspec.structs.replace(comparison, budget=parts))


def _result_of(given: RunGiven) -> Result:
    return given if isinstance(given, Result) else read_run(given)


def _case_of(measured: Result) -> dict[str, Any]:
    return {"scenario": measured.scenario.name, "N": measured.scenario.verifiers.count}


def _with_reruns(measured: Result, reruns: Sequence[RunGiven]) -> list[Run]:
    """The runs of one scenario: the measured one, then its reruns; InputError for a run of another one."""
    if isinstance(reruns, str | Path | Result):
        raise InputError(f"reruns = {reruns!r}: needs a list of runs")
    runs = [measured.run]
    for given in reruns:
        rerun = _result_of(given).run
        name = given if isinstance(given, str | Path) else rerun.header.scenario.name
        if rerun.header.world != measured.run.header.world:
            raise InputError(f"rerun {name}: is of the other world; name reruns of the measured run")
        apart = next(keys_apart(rerun, measured.run), None)
        if apart is not None:
            raise InputError(f"rerun {name}: is of another scenario; {apart}")
        runs.append(rerun)
    return runs


def _shown(comparison: compare_rows.Comparison) -> Comparison:
    return Comparison(**msgspec.structs.asdict(comparison))
