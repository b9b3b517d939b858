"""Several engine runs of one scenario, and the simulation of each: played back, and blind."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from experiments.jobs import side_by_side
from experiments.worlds import redrawn
from fleet.records.metrics.measure import combine, measure
from fleet.records.metrics.window import Metric, with_percentiles
from fleet.records.playback import MECHANISM, NOTHING_PLAYED, Playback, playback_of
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario
from sim.run import simulate

Measured = Mapping[str, Metric]
PLAYED_SEEDS = 3  # of a run that is played back: links and overhead are still drawn


class Reruns(msgspec.Struct, frozen=True):
    """Metrics and percentiles of the engine's runs, one by one, and of each as `MECHANISM` plays it back."""

    engine: list[dict[str, Metric]]
    mechanism: list[dict[str, Metric]]


def simulated_reruns(scenario: Scenario, runs: Sequence[Run]) -> Reruns:
    """Simulate the scenario from its profile, once for each of its engine runs.

    Raises InputError if a run's log is not from its scenario.
    """
    return Reruns(
        engine=[with_percentiles(measure(run)) for run in runs],
        mechanism=[replicate(scenario, PLAYED_SEEDS, playback_of(run, MECHANISM)) for run in runs],
    )


def replicate(scenario: Scenario, seeds: int, playback: Playback = NOTHING_PLAYED) -> dict[str, Metric]:
    """Simulate with seeds 0, 1, ... and return the metrics' means, with intervals over the replications.

    The requests are the scenario's in each: a run that is predicted has no others.
    """
    jobs = min(os.cpu_count() or 1, seeds)
    every = [(scenario, playback, seed) for seed in range(seeds)]
    return combine(list(side_by_side(_measured, every, jobs)))


def _measured(scenario: Scenario, playback: Playback, seed: int) -> dict[str, Metric]:
    run = simulate(redrawn(scenario, seed), playback if playback.parts else None)
    return with_percentiles(measure(run))
