"""Fairness at the drafter: weights and rate limits."""

from typing import Any

import pytest

from fleet.records.metrics.measure import measure_targets
from fleet.records.replay import replay
from fleet.scenario.scenario import Scenario
from sim.run import simulate
from tests.helpers.stars import star


def crowded(**tables: Any) -> Scenario:
    """Twelve targets, where N_full is five: they queue."""
    drafters = {"depth": 5} | tables.pop("drafters", {})
    return star(verifiers={"count": 12}, drafters=drafters, workload={"requests": 12, "new_tokens": 600}, **tables)


def test_weighted_targets_get_rounds_in_proportion() -> None:
    rounds = measure_targets(simulate(crowded(drafters={"order": {"policy": "weighted", "weights": [2, 1]}})))
    rates = rounds.rounds_per_s
    assert rates[0] == pytest.approx(2 * rates[1:].mean(), rel=0.1)
    assert rates[1:].max() == pytest.approx(rates[1:].min(), rel=0.1)


def test_a_limited_target_stays_at_its_limit() -> None:
    run = simulate(crowded(drafters={"limits_per_s": [0.05, 0]}))
    rates = measure_targets(run).rounds_per_s
    assert rates[0] == pytest.approx(0.05, rel=0.05)
    assert rates[1:].min() > 0.08
    assert replay(run) == []
