"""Draft lengths: the bounds of every rule's keys, and no rule exceeds its maximum."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.policies.adaedl import AdaEdl
from specfleet.fleet.policies.aligned import Realign, SameLength
from specfleet.fleet.policies.allocate import Fixed, FixedShare, RandomShare
from specfleet.fleet.policies.dsde import Dsde
from specfleet.fleet.policies.goodspeed import GoodSpeed
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.shapes import Shape, reach


@pytest.mark.parametrize(
    ("rule", "defaults"),
    [
        (Dsde, {"cap": True}),
        (AdaEdl, {"base": 7}),
        (GoodSpeed, {"alpha": 1.0, "eta": 0.1, "beta": 0.5, "eta_exponent": 0.0, "beta_exponent": 0.0}),
        (SameLength, {"window": 24, "sort": False}),
        (Realign, {"fixed": True}),
        (Ahead, {"least": 1, "busy": False}),
        (Shape, {"kind": "chain", "branching": (2,), "width": 4, "most": 16}),
    ],
)  # fmt: skip
def test_defaults_are_those_of_the_papers(rule: Any, defaults: dict[str, Any]) -> None:
    """A changed default changes the results of every scenario that relies on it."""
    fields = msgspec.structs.fields(rule)
    actual = {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
    assert actual == defaults


@pytest.mark.parametrize(
    ("rule", "longest"),
    [
        (Fixed(7), 7), (FixedShare(7), 7), (RandomShare(7), 7),
        (GoodSpeed(7), 7), (Dsde(), 20), (AdaEdl(), 7), (AdaEdl(base=3), 3),
    ],
)  # fmt: skip
def test_rules_report_their_longest_draft(rule: Any, longest: int) -> None:
    assert rule.longest == longest


@given(st.integers(0, 40), st.integers(1, 6), st.integers(0, 3))
def test_shares_of_a_budget_are_whole_and_use_it_up(budget: int, sessions: int, seed: int) -> None:
    rng, states = np.random.default_rng(seed), [None] * sessions
    fixed = FixedShare(budget).lengths(states, rng)
    assert sum(fixed) == budget
    assert max(fixed) - min(fixed) <= 1
    assert fixed == sorted(fixed, reverse=True)
    drawn = RandomShare(budget).lengths(states, rng)
    assert sum(drawn) == budget
    assert len(drawn) == sessions
    assert min(drawn) >= 0
    assert FixedShare(budget).lengths([], rng) == RandomShare(budget).lengths([], rng) == []


@given(st.integers(0, 9), st.integers(0, 30), st.integers(0, 25))
def test_drafts_end_at_the_models_last_position(depth: int, base: int, positions: int) -> None:
    expected = (
        depth if positions == 0 else len([place for place in range(base + 1, base + depth + 1) if place <= positions])
    )
    assert reach(depth, base, positions) == expected
