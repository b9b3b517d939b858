"""Replications of a simulation: many seeds on the cores at hand, combined into means with intervals."""

import os
from collections.abc import Mapping

from experiments.jobs import side_by_side
from experiments.worlds import with_seed
from fleet.records.metrics import combine, measure
from fleet.records.window import Metric
from fleet.scenario.scenario import Scenario
from fleet.times.pace import Pace
from sim.run import simulate


def replicate(scenario: Scenario, seeds: int, paces: Mapping[str, Pace]) -> dict[str, Metric]:
    """Simulate with seeds 0, 1, ... and return the metrics' means, with intervals over the replications."""
    jobs = min(os.cpu_count() or 1, seeds)
    return combine(list(side_by_side(_measured, [(scenario, paces, seed) for seed in range(seeds)], jobs)))


def _measured(scenario: Scenario, paces: Mapping[str, Pace], seed: int) -> dict[str, Metric]:
    return measure(simulate(with_seed(scenario, seed), paces))
