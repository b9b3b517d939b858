"""Adaptive depth: what it tries first, what it learns, and that it finds the best depth."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.policies.depth import AdaptiveDepth, Observed, SmoothedAcceptance
from fleet.scenario.resolved import ResolvedDrafters
from fleet.stations.drafter import DrafterStation
from fleet.stations.messages import DraftRequest
from tests.helpers.stars import repeatable
from tests.helpers.steps import ended, started

costs_s = st.sampled_from([0.0, 0.1, 0.7, 3.0])


def observed_line(a: float, b: float, return_s: float) -> Observed:
    """A drafter that has timed S(d) = a + b d at two depths; its targets return after `return_s`."""
    return Observed().step(1, a + b).step(3, a + 3 * b).back(return_s)


def tokens_per_s(beta: float, a: float, b: float, return_s: float, sessions: int, depth: int) -> float:
    """Equations (3), (5) and (8) to (10), written out: committed tokens a round over max(N S, S + Z)."""
    committed = sum(beta**k for k in range(depth + 1))
    service_s = a + b * depth
    return committed / max(sessions * service_s, service_s + return_s)


@repeatable
@given(st.integers(1, 12), st.integers(0, 9))
def test_two_depths_are_tried_in_turn_until_both_are_timed(most: int, steps: int) -> None:
    rule, observed = AdaptiveDepth(most=most), Observed()
    tried = []
    for _ in range(steps + 2):
        tried.append(rule.depth(rule.start(), observed, 1))
        observed = observed.step(tried[-1], 1.0)
    assert tried == (tried[:2] * (steps + 2))[: len(tried)]
    assert 1 <= min(tried) <= max(tried) <= most
    if most > 4:
        assert tried[:2] == [4, 5]
    if most > 1:
        assert tried[1] == tried[0] + 1
        assert observed.line() is not None


def test_times_alone_decide_nothing_before_a_target_has_come_back() -> None:
    rule = AdaptiveDepth()
    timed = Observed().step(4, 1.0).step(5, 1.1).step(4, 1.0)
    assert timed.line() is not None
    assert rule.depth(rule.start(), timed, 1) == 5
    back_only = Observed().back(5.0)
    assert rule.depth(rule.start(), back_only, 1) == 4


@repeatable
@given(
    st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), costs_s, st.sampled_from([0.1, 0.7, 3.0]), costs_s,
    st.integers(1, 5), st.integers(1, 10),
)  # fmt: skip
def test_the_depth_is_the_shallowest_of_the_best(
    beta: float, a: float, b: float, return_s: float, sessions: int, most: int
) -> None:
    rule = AdaptiveDepth(most=most)
    chosen = rule.depth(SmoothedAcceptance(beta, 1.0), observed_line(a, b, return_s), sessions)
    offered = [tokens_per_s(beta, a, b, return_s, sessions, depth) for depth in range(1, most + 1)]
    assert 1 <= chosen <= most
    assert offered[chosen - 1] == pytest.approx(max(offered), rel=1e-9)
    assert all(earlier < offered[chosen - 1] * (1 + 1e-12) for earlier in offered[: chosen - 1])


def test_of_depths_that_are_equally_good_the_shallowest_is_taken() -> None:
    """Nothing is ever accepted, and deeper drafts cost nothing."""
    assert AdaptiveDepth().depth(SmoothedAcceptance(0.0, 10.0), observed_line(1.0, 0.0, 2.0), 1) == 1


def test_more_accepted_than_tested_counts_as_all() -> None:
    """Smoothed counts may differ by rounding; the rate stays a probability."""
    observed = observed_line(1.0, 0.1, 2.0)
    assert AdaptiveDepth().depth(SmoothedAcceptance(1.1, 1.0), observed, 1) == AdaptiveDepth().depth(
        SmoothedAcceptance(1.0, 1.0), observed, 1
    )


@pytest.mark.parametrize(("accepted", "tested"), [(0, 1), (2, 3), (4, 5), (5, 5)])
def test_a_draft_is_tested_up_to_its_first_mismatch(accepted: int, tested: int) -> None:
    state = AdaptiveDepth().learn(SmoothedAcceptance(4.0, 8.0), 5, accepted)
    assert state == SmoothedAcceptance(0.95 * 4 + accepted, 0.95 * 8 + tested)


def test_new_sessions_start_with_acceptance_seven_in_ten() -> None:
    assert AdaptiveDepth().start().rate == 0.7
    assert SmoothedAcceptance(3.0, 4.0).rate == 0.75


def test_returns_are_smoothed_from_the_first_one_on() -> None:
    once = Observed().back(8.0)
    assert (once.return_s, once.returns) == (8.0, 1)
    twice = once.back(4.0)
    assert (twice.return_s, twice.returns) == (0.95 * 8 + 0.05 * 4, 2)
    assert msgspec.structs.replace(twice, return_s=0.0, returns=0) == Observed()


@repeatable
@given(st.floats(0, 5), st.floats(0.01, 5), st.lists(st.integers(1, 9), min_size=2, max_size=8))
def test_straight_line_needs_two_depths_and_is_exact(a: float, b: float, depths: list[int]) -> None:
    observed = Observed()
    for depth in depths:
        observed = observed.step(depth, a + b * depth)
    if len(set(depths)) == 1:
        assert observed.line() is None
    else:
        assert observed.line() == pytest.approx((a, b), abs=1e-6)


def test_neither_part_of_a_step_takes_less_than_no_time() -> None:
    """Noise may tilt the line; it is clipped to possible times."""
    assert Observed().step(1, 3.0).step(3, 1.0).line() == (2.0, 0.0)
    assert Observed().step(1, 0.0).step(3, 4.0).line() == (0.0, 2.0)


def test_a_drafter_learns_what_came_back_and_when() -> None:
    """Two rounds of one target: four of its first draft pass in 5 s; the station keeps the rule's state."""
    rule = AdaptiveDepth()
    hub = DrafterStation("drafter", ResolvedDrafters(allocate=rule, targets=2))
    hub.handle(DraftRequest(3, 0, epoch=1, base=11, opening=True), 0.0)
    started(hub)
    ended(hub, 2.0, duration_s=2.0)  # the prefill, which is not counted
    assert started(hub, 2.0).members[0].tokens == 4
    ended(hub, 3.0)
    assert hub.observed == Observed().step(4, 1.0)
    hub.handle(DraftRequest(3, 0, epoch=2, base=16), 8.0)
    assert hub.accepted == {3 % 2: rule.learn(rule.start(), 4, 4)}
    assert hub.observed == Observed().step(4, 1.0).back(5.0)
    assert started(hub, 8.0).members[0].tokens == 5  # the other depth
    ended(hub, 9.5, duration_s=1.5)
    hub.handle(DraftRequest(3, 0, epoch=3, base=19), 15.5)
    assert hub.accepted == {1: rule.learn(rule.learn(rule.start(), 4, 4), 5, 2)}
    assert hub.observed == Observed().step(4, 1.0).back(5.0).step(5, 1.5).back(6.0)
    assert started(hub, 15.5).members[0].tokens == rule.depth(hub.accepted[1], hub.observed, 1)
