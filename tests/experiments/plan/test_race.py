"""A race of candidates: the leader and the eliminated, from trials alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.question import APART, FleetShape
from specfleet.experiments.plan.trials import Entrant, Trials, gap_to, leader_of, unsettled
from specfleet.fleet.scenario.reading import scenario_of
from tests.helpers.grids import entrant_of

GOAL = parse_slo(["tpot_p99=40ms"])


def entrant(N: int, costs: list[float], tpot_s: float = 0.03, per_hour: float = 1.0) -> Entrant:
    shape = FleetShape(APART, 1, N, {"drafters.depth": 4})
    values = [{"cost_per_million": cost, "tpot_p99_s": tpot_s, "tpot_s": tpot_s} for cost in costs]
    return entrant_of(shape, per_hour, *values)


def test_the_cheapest_that_meets_the_goals_leads() -> None:
    cheap_but_slow, middle, dear = entrant(1, [1.0, 1.0], 0.05), entrant(2, [2.0, 2.0]), entrant(3, [3.0, 3.0])
    assert leader_of([dear, cheap_but_slow, middle], GOAL, open_loop=False) is middle
    assert leader_of([dear, cheap_but_slow, middle], (), open_loop=False) is cheap_but_slow
    assert leader_of([cheap_but_slow], GOAL, open_loop=False) is None


def test_of_arrivals_the_cheapest_hour_leads() -> None:
    dear, slow, quick = entrant(1, [1.0], per_hour=3.0), entrant(2, [5.0], 0.035), entrant(3, [5.0], 0.03)
    assert leader_of([dear, slow, quick], GOAL, open_loop=True) is quick


def test_common_luck_of_a_seed_does_not_hide_a_difference() -> None:
    luck = np.random.default_rng(0).normal(0, 0.3, 8)
    ours, theirs = entrant(1, list(2 + luck)), entrant(2, list(1.03 * (2 + luck)))
    gap = gap_to(ours, theirs, rivals=20, open_loop=False)
    assert gap.value == pytest.approx(0.03)
    assert gap.is_clear
    assert not unsettled(ours, [ours, theirs], (), open_loop=False)


def test_indistinguishable_fleets_get_more_seeds() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = entrant(1, list(rng.normal(2, 0.3, 5))), entrant(2, list(rng.normal(2, 0.3, 5)))
    assert unsettled(ours, [ours, theirs], (), open_loop=False) == [theirs]


def test_a_cost_within_a_hundredth_needs_no_more_seeds() -> None:
    ours, theirs = entrant(1, [2.0, 2.1, 2.2]), entrant(2, [2.004, 2.1, 2.21])
    assert unsettled(ours, [theirs], (), open_loop=False) == []
    assert unsettled(ours, [theirs], (), open_loop=False, nothing_too=True) == [theirs]


@given(st.integers(0, 10**6))
def test_equal_fleets_are_called_different_in_one_of_twenty(first: int) -> None:
    """20 draws at once: that none, or few of them, are called clear has a probability that is stated below."""
    rng = np.random.default_rng(first)
    calls = 0
    for _ in range(60):
        base = rng.normal(2, 0.2, 8)
        ours, theirs = entrant(1, list(base)), entrant(2, list(base * rng.normal(1, 0.05, 8)))
        calls += gap_to(ours, theirs, rivals=1, open_loop=False).is_clear
    assert calls <= 14  # binomial(60, 0.05) is above 14 with probability 3e-7; hypothesis asks 100 times


def test_a_goal_is_missed_clearly_beyond_chance_or_far() -> None:
    assert entrant(1, [1.0], 0.05).misses_clearly(GOAL)
    assert not entrant(1, [1.0], 0.047).misses_clearly(GOAL)  # of a 99th percentile a single trial says little
    assert entrant(1, [1.0], 0.045).misses_clearly(parse_slo(["tpot_mean=40ms"]))
    assert entrant(1, [1.0, 1.0], 0.042).misses_clearly(GOAL)  # both say the same
    assert not entrant(1, [1.0, 1.0], 0.039).misses_clearly(GOAL)


def test_an_overloaded_fleet_is_out_whatever_it_shows() -> None:
    shape = FleetShape(APART, 1, 1)
    over = entrant_of(shape, 1.0, {"tpot_p99_s": 0.001, "tpot_s": 0.001, "overload": 1.0})
    assert leader_of([over], GOAL, open_loop=True) is None
    assert over.misses_clearly(())


def test_a_cheaper_fleet_near_its_goal_is_unsettled() -> None:
    dear = entrant(3, [3.0, 3.0], 0.03, per_hour=3.0)
    cheap = entrant(2, [2.0], 0.041, per_hour=2.0)
    hopeless = entrant(1, [1.0], 0.06, per_hour=1.0)
    assert unsettled(dear, [dear, cheap, hopeless], GOAL, open_loop=True) == [cheap]


def test_who_is_near_a_goal_is_at_its_edge() -> None:
    assert entrant(1, [1.0], 0.041).is_at_the_edge(GOAL)
    assert not entrant(1, [1.0], 0.03).is_at_the_edge(GOAL)
    assert not entrant(1, [1.0, 1.0], 0.039).is_at_the_edge(GOAL)  # both say the same


def test_a_fleet_that_is_named_twice_gets_its_seeds_once() -> None:
    said: list[str] = []
    trials = Trials(said.append)
    star = scenario_of("star", {"workload.requests": 4, "workload.new_tokens": 8})
    for seeds in (2, 3):
        trials.run([star, star], seeds, 1)
    first, second, third = (values["throughput"] for values in trials.values[star.name])
    assert len({first, second, third}) == len(said) == 3
