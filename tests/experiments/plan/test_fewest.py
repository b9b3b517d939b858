"""Searches for the fewest targets: right for any fleet that more targets never slow down, with few simulations."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.plan.fewest import Search
from experiments.plan.goals import parse_slo
from experiments.plan.question import APART, Shape
from experiments.plan.race import Entrant, entrants_of
from experiments.plan.screen import Screened
from experiments.plan.trial import Trial
from tests.helpers.questions import question_of

LIMIT_S = 0.04
QUESTION = question_of(1)
GOAL = parse_slo([f"tpot_p99={LIMIT_S}"])


def line_of(estimates_s: list[float]) -> dict[int, list[Screened]]:
    """A line of fleets of 1, 2, ... targets; what equations say a token takes, falling."""
    return {N: [Screened(Shape(APART, 1, N), 100.0, tpot_s, 0.5, 0.5, float(N))]
            for N, tpot_s in enumerate(estimates_s, start=1)}  # fmt: skip


def seen(one: Screened, truth_s: list[float]) -> dict[str, Entrant]:
    tpot_s = truth_s[one.shape.targets - 1]
    return entrants_of([Trial(one.shape, 0, {"tpot_p99_s": tpot_s})], {one.shape.title: one.cost_per_hour})


def run(search: Search, truth_s: list[float]) -> int:
    looks = 0
    while not search.is_over():
        search.look(seen(search.probe(), truth_s))
        looks += 1
    return looks


def search_of(estimates_s: list[float]) -> Search:
    search = Search(line_of(estimates_s), QUESTION)
    search.goals = tuple(GOAL)
    return search


TIMES = st.lists(st.floats(0.01, 0.2), min_size=1, max_size=24).map(lambda drawn: sorted(drawn, reverse=True))


@given(estimates_s=TIMES, data=st.data())
def test_the_fewest_that_reach_the_goal_are_found_whatever_equations_say(
    estimates_s: list[float], data: st.DataObject
) -> None:
    size = len(estimates_s)
    truth_s = data.draw(st.lists(st.floats(0.01, 0.2), min_size=size, max_size=size).map(lambda s: sorted(s)[::-1]))
    search = search_of(estimates_s)
    looks = run(search, truth_s)
    enough = [N for N, tpot_s in enumerate(truth_s, start=1) if tpot_s <= LIMIT_S]
    assert (search.found.shape.targets if search.found else None) == (enough[0] if enough else None)
    assert looks <= 3 + math.ceil(math.log2(size + 1))


@pytest.mark.parametrize("off", [0.6, 1.0, 1.3, 2.0])
def test_equations_that_are_off_by_a_factor_cost_few_simulations(off: float) -> None:
    truth_s = [0.02 + 0.2 / N for N in range(1, 25)]
    search = search_of([off * tpot_s for tpot_s in truth_s])
    assert run(search, truth_s) <= 4
    assert search.found is not None
    assert search.found.shape.targets == 10


@given(truth_s=TIMES, most=st.integers(1, 24))
def test_a_limited_search_looks_at_nothing_dearer_and_finds_what_is_affordable(truth_s: list[float], most: int) -> None:
    search = search_of(truth_s)
    search.limit(float(most), missed=1.0)
    while not search.is_over():
        assert search.probe().cost_per_hour <= most
        search.look(seen(search.probe(), truth_s))
    enough = [N for N, tpot_s in enumerate(truth_s[:most], start=1) if tpot_s <= LIMIT_S]
    assert (search.found.shape.targets if search.found else None) == (enough[0] if enough else None)
