"""Fairness at the drafter: weights, deadlines, rate limits, and their metrics."""

from typing import Any

import numpy as np
import pytest

from fleet.policies.order import Deadline, Weighted
from fleet.records.metrics.measure import measure, measure_targets
from fleet.records.metrics.tables import rounds_of
from fleet.records.replay import replay
from fleet.scenario.scenario import Scenario
from fleet.stations.buffer import Work
from sim.run import simulate
from tests.helpers.stars import star


def test_the_earliest_deadline_goes_first() -> None:
    order = Deadline((5.0, 1.0))
    waiting = [
        Work("draft", 0, target=0, asked_s=0.0),
        Work("draft", 1, target=1, asked_s=3.0),
        Work("draft", 2, target=2, asked_s=3.5),
    ]
    assert order.pick(waiting) == 1  # due at 4, before 4.5 and 5


def test_the_last_weight_holds_for_the_rest() -> None:
    order = Weighted((4.0, 1.0))
    assert [order.weight(target) for target in (0, 1, 7)] == [4.0, 1.0, 1.0]


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


def share_in_time(scenario: Scenario, within_s: list[float]) -> float:
    """Share of rounds with a draft within the deadline of its target."""
    rounds = rounds_of(simulate(scenario).columns()).frame().dropna(subset=["asked_s", "drafted_s"])
    limits_s = np.asarray(within_s)[np.minimum(rounds.tag, len(within_s) - 1)]
    return float((rounds.drafted_s - rounds.asked_s <= limits_s).mean())


def test_deadline_order_keeps_more_deadlines_than_fifo() -> None:
    within_s = [3.0, 3.0, 20.0]
    orders = ({"policy": "fifo"}, {"policy": "deadline", "within_s": within_s})
    fifo, deadline = (share_in_time(crowded(drafters={"order": order}), within_s) for order in orders)
    assert deadline > fifo


def test_unequal_shares_show_in_jains_index() -> None:
    fair = measure(simulate(crowded()))["fairness"].value
    weighted = measure(simulate(crowded(drafters={"order": {"policy": "weighted", "weights": [3, 1]}})))[
        "fairness"
    ].value
    assert weighted < fair
    assert fair == pytest.approx(1.0, abs=0.01)
