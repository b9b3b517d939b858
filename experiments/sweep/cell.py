"""One cell of a sweep: its scenario with all its seeds, in either world, and the equations' results for it.

Worker processes import this module, so it needs no pandas.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import Findings, findings_of
from specfleet.fleet.records.metrics.measure import assess, combine
from specfleet.fleet.records.metrics.window import Metric, without_intervals
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.names import SimPath, World
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.star import star_inputs
from specfleet.sim.predict import predict_fleet

Cell = Mapping[str, Any]
ANALYTIC = ("throughput", "throughput_per_target", "N_full", "N_max", "standalone_tokens_per_s",
            "idle_slowdown", "prefill_share")  # fmt: skip
"""What the equations say of a cell, and what they leave out: a factor of drafts, a share of a request's time."""


class CellResult(msgspec.Struct, frozen=True):
    """One finished or failed cell: its keys and values, and its metrics over the seeds; `error` if it failed.

    `analytic`: results of the equations, where they apply. `overload`: the verdict if the load exceeds the capacity;
    the cell then has no steady state, and no intervals. `scenario_digest`: of all that its runs read (`resume.py`).
    `basis`: what its step times rest on; see `fleet/times/labels.py`. `power`: whether devices were sampled.
    `found`: whether an earlier sweep ran it.
    """

    cell: dict[str, Any]
    world: World
    seeds: int
    scenario_digest: str
    metrics: dict[str, Metric] = {}
    analytic: dict[str, float] = {}
    overload: str = ""
    error: str = ""
    basis: str = ""
    power: bool = False
    found: bool = False


def run_cell(
    cell: dict[str, Any], scenario: Scenario, world: World, seeds: int, path: SimPath = "auto", power: bool = False
) -> CellResult:
    """Run one cell with `seeds` seeds and combine them; an error becomes part of the result."""
    digest = resume_digest(scenario)
    try:
        reseeded = (msgspec.structs.replace(scenario, seed=scenario.seed + number) for number in range(seeds))
        assessed = [assess(_observe(world, seeded, path, power)) for seeded in reseeded]
    except Exception as error:
        if not isinstance(error, InputError):  # which says in one line what is wrong
            logging.getLogger("specfleet").exception("cell %s", cell)
        return CellResult(cell, world, seeds, digest, error=f"{type(error).__name__}: {error}")
    runs = [metrics for metrics, _ in assessed]
    metrics = combine(runs) if len(runs) > 1 else runs[0]
    overload = next((verdict.line() for _, verdict in assessed if verdict is not None), "")
    if overload:
        metrics = without_intervals(metrics, math.inf)
    values, basis = analytic_values(scenario), resolve(scenario).basis_in(world)
    return CellResult(cell, world, len(runs), digest, metrics, values, overload, "", basis, power)


def _observe(world: World, scenario: Scenario, path: SimPath, power: bool) -> Findings:
    """Run the scenario in a world, for its metrics; each world's libraries are imported on its use."""
    if world == "sim":
        from specfleet.sim.run import observe

        return observe(scenario, path=path)
    from specfleet.engine.launch.serve import serve

    return findings_of(serve(scenario, power=power).run)


def analytic_values(scenario: Scenario) -> dict[str, float]:
    """Throughput by the equations, N_full, N_max and baselines; empty where they do not apply: they know one star."""
    fleet = resolve(scenario)
    try:
        prediction, inputs = predict_fleet(fleet), star_inputs(fleet)
    except InputError:  # no star, or a scenario for the engine alone, without a profile
        return {}
    whole, of_target = prediction.throughput.with_bonus, prediction.throughput_per_target.with_bonus
    standalone = math.inf if prediction.targets else inputs.standalone_tokens_per_s
    most = prediction.N_max if math.isfinite(inputs.standalone_tokens_per_s) else math.nan
    drafting, lengths = fleet.drafter_times(0), fleet.lengths
    slowdown = drafting.idle.slowdown(prediction.idle_s) / drafting.idle.slowdown(0.0)
    prefill_s = sum(times.prefill.mean_s(lengths.mean_prompt) for times in (drafting, fleet.verifier_times(0)))
    share = prefill_s / (prefill_s + lengths.mean_answer / of_target)
    values = zip(ANALYTIC, (whole, of_target, prediction.N_full, most, standalone, slowdown, share), strict=True)
    return {name: float(value) for name, value in values if math.isfinite(value)}
