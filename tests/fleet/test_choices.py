"""Rules that choose: routes, orders, groups and admission, ties included."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.policies.admit import AtMost, Everyone, N_max, WithinMemory, refusal_of
from specfleet.fleet.policies.aligned import AlignedRule, Realign, Rollback, SameLength
from specfleet.fleet.policies.allocate import RandomShare
from specfleet.fleet.policies.goodspeed import GoodSpeed
from specfleet.fleet.policies.group import AllWaiting
from specfleet.fleet.policies.order import Deadline, Fifo, Priority, Weighted, Work
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.route import Predicted, RoundRobin, ShortestQueue
from specfleet.fleet.policies.warm_up import AfterIdle, NoWarmUp
from specfleet.fleet.scenario.resolved import ResolvedDrafters, ResolvedVerifiers
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.grants import Grants
from specfleet.fleet.stations.messages import Draft, DraftRequest, Ignored, Join, Refusal, StepDone
from specfleet.fleet.stations.station import Start
from specfleet.fleet.stations.verifier import VerifierStation
from tests.helpers.steps import ended, run_step, started


@st.composite
def places(draw: st.DrawFn) -> tuple[list[int], int | None]:
    """Queues of some drafters, and the home of a session among them, if it has one."""
    queues = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    return queues, draw(st.none() | st.integers(0, len(queues) - 1))


@given(places())
def test_a_session_leaves_home_for_a_shorter_queue_only(place: tuple[list[int], int | None]) -> None:
    queues, home = place
    chosen = ShortestQueue().choose(home, queues, 0)
    assert Predicted((0.7,), (0.0,)).choose(home, queues, 0) == chosen  # of like drafters
    if home is not None and queues[home] == min(queues):
        assert chosen == home
    else:
        assert chosen == queues.index(min(queues))


def test_predictions_weigh_speed_moves_and_acceptance() -> None:
    unlike = Predicted((1.0, 3.0), (0.0,))
    assert [unlike.choose(1, (queue, 0), 0) for queue in (1, 2, 3)] == [0, 1, 1]  # a tie at 3 s: it stays
    assert [Predicted((1.0,), (1.5,)).choose(0, (queue, 0), 0) for queue in (1, 2)] == [0, 1]
    assert Predicted((1.0,), (0.0,), (2.0, 5.0)).choose(0, (0, 1), 0) == 1


@given(places(), st.integers(0, 9))
def test_turns_look_at_no_queue(place: tuple[list[int], int | None], turn: int) -> None:
    queues, home = place
    assert RoundRobin().choose(home, queues, turn) == turn % len(queues)


kinds, times_s = st.sampled_from(["prefill", "verify", "decode"]), st.sampled_from([0.0, 0.5, 1.0])
work = st.builds(Work, kinds, st.integers(0, 5), st.integers(0, 2), times_s, due_s=times_s)
works = st.lists(work, min_size=1, max_size=5)


@given(works)
def test_orders_take_the_oldest_of_the_most_urgent(waiting: list[Work]) -> None:
    assert Fifo().pick(waiting) == 0
    priorities = [work.priority for work in waiting]
    assert Priority().pick(waiting) == priorities.index(max(priorities))
    starts = [work.virtual_start for work in waiting]
    assert Weighted((1.0,)).pick(waiting) == starts.index(min(starts))
    dues_s = [work.due_s for work in waiting]
    assert Deadline((1.0,)).pick(waiting) == dues_s.index(min(dues_s))


@given(works)
def test_groups_have_one_kind(waiting: list[Work]) -> None:
    kinds = [work.kind for work in waiting]
    of_kind = {kind: [index for index, each in enumerate(kinds) if each == kind] for kind in set(kinds)}
    assert AllWaiting().pick(waiting) == of_kind[kinds[0]]
    assert AllWaiting(most=2).pick(waiting) == of_kind[kinds[0]][:2]
    assert AllWaiting().pick([]) == []


def test_admission_is_up_to_a_number_and_not_beyond() -> None:
    assert Everyone().refusal(10**6) is None
    for rule in (AtMost(2), WithinMemory(20, 10), WithinMemory(29, 10)):
        assert [rule.refusal(active) is None for active in (0, 1, 2, 3)] == [True, True, False, False]
    each = AtMost((2, 0, 1))  # the last number is that of all further targets
    assert [refusal_of(each, 1, target) is None for target in range(4)] == [True, False, False, False]
    assert [refusal_of(each, 0, target) is None for target in range(4)] == [True, False, True, True]
    assert [each.refusal(active) is None for active in (1, 2)] == [True, False]


def test_a_round_as_long_as_the_slowest_allowed_still_counts() -> None:
    """4 tokens at 2 a second: rounds of 2 s. S + Z may be just that, and N S, too."""
    assert N_max(0.5, 1.5, 4.0, 2.0) == 4
    assert N_max(0.5, 1.6, 4.0, 2.0) == 0
    assert N_max(0.4, 0.2, 4.0, 2.0) == 5
    assert N_max(2.0, 0.0, 4.0, 2.0) == 1
    assert N_max(0.1, 0.0, 0.3, 1.0) == 3  # 0.3 / 0.1 is a hair below 3


def test_warm_up_runs_from_its_gap_on() -> None:
    assert [AfterIdle(2.0, 3).tokens_after(gap_s) for gap_s in (0.0, 1.9, 2.0, 9.0)] == [0, 0, 3, 3]
    assert NoWarmUp().tokens_after(9.0) == 0
    assert AfterIdle(0.0, 1).tokens_after(0.0) == 1


@pytest.mark.parametrize("least", [1, 2, 3])
def test_verification_ahead_waits_for_its_minimum_tail(least: int) -> None:
    """Prompt of 5, goal of 9, 6 committed: three draft tokens are all that will come."""
    station = VerifierStation("verifier.1", ResolvedVerifiers(overlap=Ahead(least=least)))
    station.handle(Join(0, 0, 5, 4), 0.0)
    run_step(station, 1.0)
    for tokens in range(1, 4):
        station.handle(Draft(0, 0, epoch=1, base=5 + tokens, tokens=1), 2.0)
        assert bool(station.waiting) == (tokens >= least)
    assert len(station.waiting) == 1


@pytest.mark.parametrize(
    ("rule", "flags"),  # pool of three rows, together, sorts
    [
        (Realign(), (3, True, False)),
        (Realign(fixed=False), (3, False, False)),
        (Rollback(), (3, True, False)),
        (SameLength(window=7), (7, False, False)),
        (SameLength(window=3, sort=True), (3, False, True)),
    ],
)
def test_what_a_rule_of_rows_asks_of_its_station(rule: AlignedRule, flags: tuple[int, bool, bool]) -> None:
    assert (rule.pool(3), rule.together, rule.sorts) == flags
    expected = [1, 1, 1] if isinstance(rule, Rollback) else [3, 1, 2]
    assert rule.kept([3, 1, 2]) == expected
    assert rule.kept([]) == []


def prefilled(**verifiers: Any) -> VerifierStation:
    """A target after the prefill of five tokens; it waits for its first draft of epoch 1 at base 6."""
    station = VerifierStation("verifier.1", ResolvedVerifiers(**verifiers))
    station.handle(Join(0, 0, 5, 9), 0.0)
    run_step(station)
    return station


@pytest.mark.parametrize("begun", [False, True])
def test_a_repeated_empty_draft_is_verified_once(begun: bool) -> None:
    station, empty = prefilled(), Draft(0, 0, epoch=1, base=6, tokens=0)
    assert station.handle(empty, 2.0) == []
    plan = station.plan(2.0) if begun else None
    (ignored,) = station.handle(empty, 2.0)
    assert isinstance(ignored, Ignored)
    assert len(station.waiting) == (0 if begun else 1)
    if isinstance(plan, Start):
        assert plan.step.members[0].tokens == 0
        assert station.handle(StepDone(plan.step.number, (Outcome(),), 1.0), 3.0) == [DraftRequest(0, 0, 2, 7)]


def test_refused_sessions_return_their_grant() -> None:
    station = prefilled(allocate=GoodSpeed(6))
    assert station.grants is not None
    assert station.grants.out == {0: 6}
    assert station.handle(Refusal(0, 0, "full"), 2.0) == []
    assert (station.grants.out, station.grants.states) == ({}, {})
    assert run_step(station) == []
    assert (station.grants.out, station.grants.states) == ({}, {})
    assert station.sessions[0].base == 7


def test_a_drafter_ends_its_drafts_where_the_models_positions_end() -> None:
    for base, tokens in ((11, 5), (15, 5), (17, 3), (19, 1), (20, 0)):
        hub = DrafterStation("drafter", ResolvedDrafters(positions=20))
        hub.handle(DraftRequest(0, 0, epoch=1, base=base, opening=True), 0.0)
        assert started(hub).members[0].tokens == base - 1
        ended(hub, 1.0)
        assert started(hub, 1.0).members[0].tokens == tokens


def test_a_lag_is_kept_for_two_rounds_of_the_lightest_target() -> None:
    assert Weighted((0.5, 2.0)).credit == 4.0


def test_shares_are_drawn_from_the_given_numbers() -> None:
    rule, grants = RandomShare(9), Grants(RandomShare(9), np.random.default_rng(5))
    for tag in range(3):
        grants.open(tag)
    drawn = rule.lengths([None] * 3, np.random.default_rng(5))
    assert drawn != rule.lengths([None] * 3, np.random.default_rng(0))
    assert list(grants.grant([0, 1, 2]).values()) == drawn
