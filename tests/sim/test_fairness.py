"""Fairness at the drafter: weights, deadlines and rate limits."""

from typing import Any

import pytest
from msgspec.structs import replace

from specfleet.fleet.policies.order import rate_limits
from specfleet.fleet.records.metrics.measure import measure, measure_targets
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.alone import alone
from specfleet.sim.run import simulate
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
    run = simulate(crowded(drafters={"order": {"policy": "fifo", "limits_per_s": [0.05, 0]}}))
    rates = measure_targets(run).rounds_per_s
    assert rates[0] == pytest.approx(0.05, rel=0.05)
    assert rates[1:].min() > 0.08
    assert replay(run) == []


def test_equal_goals_are_first_in_first_out() -> None:
    goals = {"policy": "deadline", "goals_s": [5.0]}
    assert simulate(crowded(drafters={"order": goals})).digest() == simulate(crowded()).digest()


def test_a_shorter_goal_waits_less_at_equal_throughput() -> None:
    run, fifo = simulate(crowded(drafters={"order": {"policy": "deadline", "goals_s": [1, 9]}})), simulate(crowded())
    waits_s = measure_targets(run).wait_s
    assert waits_s[0] == pytest.approx(1.0)  # at most the running draft, and one that was due before
    assert 7 < waits_s[1:].min() <= waits_s[1:].max() < 1.01 * waits_s[1:].min()
    assert measure(run)["rounds_per_s"].value == pytest.approx(measure(fifo)["rounds_per_s"].value, rel=0.01)
    assert replay(run) == []


@pytest.mark.parametrize(("route", "drafters"), [("affinity", 1), ("shortest-queue", 2)])
def test_a_target_alone_keeps_its_times(route: str, drafters: int) -> None:
    """Its second tier has the step of the first, too, and the third another machine. A router may use every drafter."""
    tiers: list[dict[str, Any]] = [{"first": 2, "step": {"base_s": 9.0}}, {"first": 3, "link": {"latency_s": 0.5}}]
    tiers += [{"first": 4, "profile": {"name": "other", "draft": {"base_s": 1.0}, "verify": {"base_s": 3.0}}}]
    order = {"policy": "fifo", "limits_per_s": [0.1, 0.2]}
    own = {"count": 2, "route": route, "tiers": [{"first": 2, "step": {"base_s": 2.0}}], "order": order}
    scenario = star(drafters=own, verifiers={"count": 4, "tiers": tiers})
    fleet, limits = resolve(scenario), (0.1, 0.2, 0.2, 0.2)
    for target in range(4):
        only, drafter = resolve(alone(scenario, target)), fleet.drafter_of(target) if drafters == 1 else 0
        assert (only.drafters.count, rate_limits(only.drafters.order)) == (drafters, (limits[target],))
        assert only.drafter_times(0).draft == fleet.drafter_times(drafter).draft
        assert only.verifier_times(0) == replace(fleet.verifier_times(target), first=0)
        assert only.link(0) == fleet.link(target, drafter)
