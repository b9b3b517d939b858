"""Searches for the fewest targets: right for any fleet that more targets never slow down, with few simulations."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.question import APART, FleetShape
from specfleet.experiments.plan.screen import Screened
from specfleet.experiments.plan.search import FleetsByTargets
from tests.helpers.grids import entrant_of

LIMIT_S = 0.04
GOALS = parse_slo([f"tpot_p99={LIMIT_S}"])


def line_of(estimates_s: list[float]) -> FleetsByTargets:
    """A line of fleets of 1, 2, ... targets; what equations say a token takes, falling."""
    fleets = [[Screened(FleetShape(APART, 1, N), 100.0, tpot_s, float(N))]
              for N, tpot_s in enumerate(estimates_s, start=1)]  # fmt: skip
    return FleetsByTargets(fleets, GOALS)


def run(line: FleetsByTargets, truth_s: list[float], most: float = math.inf) -> int:
    """Search a line; return how many fleets were simulated."""
    looks = 0
    while (one := line.probe(most)) is not None:
        assert one.cost_per_hour <= most
        line.look(one, entrant_of(one.shape, one.cost_per_hour, {"tpot_p99_s": truth_s[one.shape.targets - 1]}))
        looks += 1
    return looks


def targets(line: FleetsByTargets) -> int | None:
    return line.found.shape.targets if line.found else None


TIMES = st.lists(st.floats(0.01, 0.2), min_size=1, max_size=24).map(lambda drawn: sorted(drawn, reverse=True))


@given(estimates_s=TIMES, data=st.data())
def test_the_fewest_targets_are_found_whatever_equations_say(estimates_s: list[float], data: st.DataObject) -> None:
    size = len(estimates_s)
    truth_s = data.draw(st.lists(st.floats(0.01, 0.2), min_size=size, max_size=size).map(lambda s: sorted(s)[::-1]))
    line = line_of(estimates_s)
    looks = run(line, truth_s)
    enough = [N for N, tpot_s in enumerate(truth_s, start=1) if tpot_s <= LIMIT_S]
    assert targets(line) == (enough[0] if enough else None)
    assert looks <= 3 + math.ceil(math.log2(size + 1))


@pytest.mark.parametrize("off", [0.6, 1.0, 1.3, 2.0])
def test_equations_off_by_a_factor_cost_few_simulations(off: float) -> None:
    truth_s = [0.02 + 0.2 / N for N in range(1, 25)]
    line = line_of([off * tpot_s for tpot_s in truth_s])
    assert run(line, truth_s) <= 4
    assert targets(line) == 10


@given(truth_s=TIMES, most=st.integers(1, 24))
def test_a_limited_search_finds_what_is_affordable(truth_s: list[float], most: int) -> None:
    line = line_of(truth_s)
    run(line, truth_s, float(most))
    enough = [N for N, tpot_s in enumerate(truth_s[:most], start=1) if tpot_s <= LIMIT_S]
    assert targets(line) == (enough[0] if enough else None)
