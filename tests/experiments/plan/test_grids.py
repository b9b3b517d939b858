"""Verdicts on plans: what a full grid says of the fleet that a plan chose."""

from specfleet.experiments.plan.answer import Reached
from specfleet.experiments.plan.doubt import Range
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.question import PLAIN, FleetShape
from specfleet.experiments.plan.trials import Entrant
from tests.helpers.grids import entrant_of, is_worse

GOAL = parse_slo(["tpot_p99=40ms"])


def fleet(N: int, cost: float, *tpots_s: float) -> Entrant:
    shape = FleetShape(PLAIN, 0, N)
    values = [{"cost_per_million": cost, "tpot_p99_s": tpot_s, "tpot_s": tpot_s} for tpot_s in tpots_s]
    return entrant_of(shape, cost, *values)


def test_a_plan_is_as_good_as_the_grids_best() -> None:
    best, near, dear = fleet(1, 1.0, 0.03, 0.03), fleet(2, 1.009, 0.03, 0.03), fleet(3, 1.2, 0.03, 0.03)
    assert not is_worse(best, best, (), GOAL)
    assert not is_worse(near, best, (), GOAL)
    assert is_worse(dear, best, (), GOAL)
    assert not is_worse(dear, best, (best.title,), GOAL)


def test_chance_decides_only_at_the_edge_of_a_goal() -> None:
    unsure, missing = fleet(1, 1.0, 0.039, 0.0405, 0.0402), fleet(2, 0.9, 0.05, 0.0501, 0.0502)
    dear = fleet(3, 1.2, 0.03, 0.03)
    assert not is_worse(dear, unsure, (), GOAL)
    assert is_worse(missing, dear, (), GOAL)
    ranges = [Range(0.0395, 0.02, 0.06, chance) for chance in (0.3, 0.1)]
    said = [Reached(GOAL[0].text, "tpot_p99_s", 0.04, one, "at its edge") for one in ranges]
    assert [is_worse(missing, dear, (), GOAL, [one]) for one in said] == [False, True]
    assert not is_worse(unsure, None, (), GOAL)
    assert is_worse(missing, None, (), GOAL)
    assert is_worse(None, dear, (), GOAL)
    assert not is_worse(None, None, (), GOAL)
