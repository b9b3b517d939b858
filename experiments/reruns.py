"""Several engine runs of one scenario, and what the simulator makes of each: played back, at its pace, blind."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from experiments.jobs import side_by_side
from experiments.worlds import redrawn
from fleet.records.metrics import combine, measure
from fleet.records.paces import paces_of
from fleet.records.playback import MECHANISM, NOTHING_PLAYED, Part, Playback, playback_of
from fleet.records.run import Run
from fleet.records.window import Metric, with_percentiles
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.pace import Pace
from sim.run import simulate

Measured = Mapping[str, Metric]
PLAYED_SEEDS = 3  # of a run that is played back: links and delays are still drawn
PACED_SEEDS = 5


class Reruns(msgspec.Struct, frozen=True):
    """Metrics and percentiles of the engine's runs, one by one; of each as `MECHANISM` plays it back, at its pace."""

    engine: list[dict[str, Metric]]
    mechanism: list[dict[str, Metric]]
    paced: list[dict[str, Metric]]


def simulated_reruns(scenario: Scenario, runs: Sequence[Run]) -> Reruns:
    """Simulate the scenario, whose profile predicts, once for each of its engine runs and way to predict it.

    Raises InputError for a run whose log is not one of its scenario. Where the host's pace is unknown, `paced` is
    empty.
    """
    control_s = settle(scenario).control_s
    paces = [paces_of(run, control_s) for run in runs]
    return Reruns(
        engine=[with_percentiles(measure(run)) for run in runs],
        mechanism=[played_back(scenario, run, MECHANISM, PLAYED_SEEDS) for run in runs],
        paced=[replicate(scenario, PACED_SEEDS, of_run) for of_run in paces] if all(paces) else [],
    )


def played_back(scenario: Scenario, run: Run, parts: Sequence[Part], seeds: int) -> dict[str, Metric]:
    """Return the metrics' means over simulations in which parts of a run are played back, and the rest drawn."""
    return replicate(scenario, seeds, {}, playback_of(run, parts) if parts else NOTHING_PLAYED)


def replicate(
    scenario: Scenario, seeds: int, paces: Mapping[str, Pace], playback: Playback = NOTHING_PLAYED
) -> dict[str, Metric]:
    """Simulate with seeds 0, 1, ... and return the metrics' means, with intervals over the replications.

    The requests are the scenario's in each: a run that is predicted has no others.
    """
    jobs = min(os.cpu_count() or 1, seeds)
    every = [(scenario, paces, playback, seed) for seed in range(seeds)]
    return combine(list(side_by_side(_measured, every, jobs)))


def _measured(scenario: Scenario, paces: Mapping[str, Pace], playback: Playback, seed: int) -> dict[str, Metric]:
    played = playback if playback.parts else None
    return with_percentiles(measure(simulate(redrawn(scenario, seed), paces, played)))
