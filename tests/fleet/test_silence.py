"""Timeouts: a station gives a drafter up, decodes alone, retries, rejoins; a drafter ends lost sessions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode

from specfleet.fleet.policies.admit import AtMost
from specfleet.fleet.policies.allocate import FixedShare
from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.route import RoundRobin
from specfleet.fleet.scenario.resolved import Patience, ResolvedDrafters, ResolvedVerifiers
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Overdue,
    Refusal,
    Released,
    Restarted,
    StepDone,
    View,
)
from specfleet.fleet.stations.session import ERA, INCARNATION, era_of, new_era
from specfleet.fleet.stations.station import Station
from specfleet.fleet.stations.verifier import VerifierStation
from tests.helpers.steps import ended, run_all, started

PATIENT = Patience(patience_s=2.0, rejoin_s=5.0)


def target(new_tokens: int = 30, **resolved: Any) -> VerifierStation:
    station = VerifierStation("verifier.1", ResolvedVerifiers(**{"patience": PATIENT} | resolved))
    station.handle(Join(0, 0, 10, new_tokens), 0.0)
    return station


def hub(**resolved: Any) -> DrafterStation:
    return DrafterStation("drafter", ResolvedDrafters(**{"depth": 3, "lease_s": 4.0} | resolved))


def step(station: Station, now_s: float, accepted: int = 0) -> list[Instruction]:
    """Let the station run its next step, with that many accepted tokens of each draft."""
    plan = started(station, now_s)
    outcomes = (Outcome(min(accepted, member.tokens) if plan.kind == "verify" else 0) for member in plan.members)
    return ended(station, now_s, *outcomes)


def tell_due(station: Station, now_s: float) -> list[Instruction]:
    return [instruction for event in station.due(now_s) for instruction in station.handle(event, now_s)]


def alone(station: VerifierStation) -> None:
    """Let the target of a fresh station give its drafter up at 3 s, with 11 tokens committed."""
    assert step(station, 1.0) == [DraftRequest(0, 0, 1, 11, opening=True)]
    assert tell_due(station, 3.0) == [Leave(0, 0, epoch=1)]


def test_a_draft_is_overdue_after_the_patience_and_not_before() -> None:
    station = target()
    step(station, 1.0)
    assert (station.alarm_s(), station.due(2.9), station.due(3.0)) == (3.0, [], [Overdue(0, 0, 1)])


def test_a_target_without_patience_waits_for_ever() -> None:
    station = target(patience=Patience())
    step(station, 1.0)
    assert (station.alarm_s(), station.due(1e9)) == (float("inf"), [])


def test_timeouts_restart_with_each_request() -> None:
    station = target()
    step(station, 1.0)
    station.handle(Draft(0, 0, 1, 11, 3), 2.0)
    assert station.alarm_s() == float("inf")
    step(station, 7.0, accepted=2)
    assert station.alarm_s() == 9.0


def test_lost_drafters_late_drafts_change_nothing() -> None:
    station = target()
    alone(station)
    before = dict(station.sessions), list(station.waiting)
    for late in (Draft(0, 0, 1, 11, 3), Draft(0, 0, 1, 11, 0), Refusal(0, 0, "full"), Overdue(0, 0, 1)):
        assert isinstance(station.handle(late, 3.5)[0], Ignored)
    assert (dict(station.sessions), list(station.waiting)) == before
    for now_s, base in ((4.0, 12), (5.0, 13)):
        assert step(station, now_s) == []
        assert station.sessions[0].base == base


def test_targets_retry_while_decoding_and_rejoin() -> None:
    station = target()
    alone(station)
    assert station.alarm_s() == 8.0
    station.plan(7.0)  # a decoding step begins
    probe = DraftRequest(0, 0, ERA * 2 + 1, 11, opening=True, tokens=0)
    assert tell_due(station, 8.0) == [probe]
    assert station.alarm_s() == 13.0  # if that is in vain
    assert station.handle(Draft(0, 0, probe.epoch, 11, 0), 8.5) == []
    assert isinstance(station.handle(Draft(0, 0, probe.epoch, 11, 0), 8.6)[0], Ignored)
    again = station.handle(StepDone(2, (Outcome(),), 1.0), 9.0)
    assert again == [DraftRequest(0, 0, ERA * 3 + 1, 12, opening=True)]
    station.handle(Draft(0, 0, ERA * 3 + 1, 12, 3), 10.0)
    step(station, 11.0, accepted=3)
    assert station.sessions[0].base == 16


def test_a_preemption_is_no_sign_of_life() -> None:
    """The drafter stays silent for new sessions; the preempted one, which it knows, gives it up by its own patience."""
    station = target(new_tokens=8, batching=ContinuousBatching(8, 8192, kv_blocks=3))
    assert step(station, 1.0) == [DraftRequest(0, 0, 1, 11, opening=True)]
    station.handle(Join(1, 1, 20, 30), 2.5)
    assert step(station, 2.8) == [DraftRequest(1, 1, 1, 21, opening=True)]
    tell_due(station, 3.0)
    while not station.rows.waiting:
        step(station, 3.1)
    assert list(station.silence.silent_s) == [0]
    while station.rows.waiting:
        step(station, 3.2)
    assert not station.sessions[1].alone
    assert tell_due(station, 5.2) == [Leave(1, 1, epoch=3)]


@pytest.mark.parametrize("answered", [0, 1])
def test_failed_retries_repeat_and_any_answer_counts(answered: int) -> None:
    """The way to a drafter and back may take longer than the time between retries."""
    station = target()
    alone(station)
    retries = [tell_due(station, 8.0)[0], tell_due(station, 13.0)[0]]
    first, second = (retry for retry in retries if isinstance(retry, DraftRequest))
    assert era_of(first.epoch) < era_of(second.epoch)
    answers = [Draft(0, 0, retry.epoch, retry.base, 0) for retry in (first, second)]
    assert isinstance(station.handle(Draft(0, 0, 2, 11, 0), 13.5)[0], Ignored)  # no answer to a retry
    back = station.handle(answers[answered], 14.0)
    assert [type(instruction) for instruction in back] == [DraftRequest]
    assert not station.waiting  # the decoding step that waited is not taken
    assert isinstance(station.handle(answers[1 - answered], 14.5)[0], Ignored)


def test_next_requests_do_not_wait_for_a_lost_drafter() -> None:
    station = target(new_tokens=2)
    alone(station)
    assert [type(instruction) for instruction in step(station, 4.0)] == [Leave, Released, Finished]
    station.handle(Join(0, 1, 10, 30), 5.0)
    assert step(station, 6.0) == []  # the prefill; then it decodes
    assert step(station, 7.0) == []
    retry = tell_due(station, 8.0)
    assert [(one.request, one.tokens) for one in retry if isinstance(one, DraftRequest)] == [(1, 0)]


def test_clients_that_begin_alone_have_no_share() -> None:
    station = target(new_tokens=2, drafters=2, allocate=FixedShare(budget=6))
    step(station, 1.0)
    tell_due(station, 3.0)
    step(station, 4.0)
    station.handle(Join(0, 1, 10, 30), 5.0)
    step(station, 6.0)
    assert station.sessions[0].alone
    station.handle(Join(1, 2, 10, 30), 6.5)
    assert [one.tokens for one in step(station, 7.0) if isinstance(one, DraftRequest)] == [6]


def test_barriers_wait_for_a_drafter_until_its_timeout() -> None:
    station = VerifierStation(
        "verifier.1", ResolvedVerifiers(patience=PATIENT, late="wait", drafters=2, allocate=FixedShare(budget=6)), None
    )
    for tag in (0, 1):
        station.handle(Join(tag, 0, 10, 30), 0.0)
    answers = step(station, 1.0)
    granted = {one.tag: one.tokens for one in answers if isinstance(one, DraftRequest)}
    assert granted == {0: 3, 1: 3}
    station.handle(Draft(0, 0, 1, 11, 3), 2.0)
    assert not station.ready
    assert tell_due(station, 3.0) == [Leave(1, 0, epoch=1)]
    assert station.ready
    assert station.grants is not None
    assert station.grants.out == {0: 3}


def test_a_tail_with_a_hole_is_given_up() -> None:
    station = target(overlap=Ahead(least=2))
    step(station, 1.0)
    station.handle(Draft(0, 0, 1, 11, 1), 1.5)
    assert isinstance(station.handle(Draft(0, 0, 1, 13, 1), 2.0)[0], Ignored)  # the one before it was lost
    assert station.due(3.5) == [Overdue(0, 0, 1)]


# The drafter's side.


def test_sessions_end_with_their_lease() -> None:
    drafter = hub()
    drafter.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0)
    step(drafter, 1.0)  # the prefill
    assert drafter.alarm_s() == float("inf")  # the target waits for the drafter, not the other way round
    step(drafter, 2.0)
    assert drafter.alarm_s() == 6.0
    drafter.handle(DraftRequest(0, 0, 2, 15), 5.0)
    assert drafter.due(100.0) == []
    step(drafter, 5.5)
    assert drafter.due(9.5) == [Leave(0, 0, epoch=2)]
    assert tell_due(drafter, 9.5) == [Released(0, 0)]
    assert (drafter.sessions, drafter.alarm_s()) == ({}, float("inf"))


def test_reopened_sessions_are_prefilled_again() -> None:
    drafter = hub()
    drafter.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0)
    drafter.plan(0.0)  # its prefill runs
    assert drafter.handle(DraftRequest(0, 0, ERA + 1, 14, opening=True), 1.0) == []
    ended(drafter, 2.0)
    kinds = [(step.kind, step.members[0].base, step.members[0].tokens) for step in run_all(drafter, 3.0)]
    assert kinds == [("prefill", 0, 13), ("draft", 14, 3)]


def test_stale_leaves_and_openings_keep_later_sessions() -> None:
    drafter = hub()
    first, again = DraftRequest(0, 0, 1, 11, opening=True), DraftRequest(0, 0, ERA + 1, 14, opening=True)
    drafter.handle(first, 0.0)
    drafter.handle(again, 1.0)
    for late in (first, again, Leave(0, 0, epoch=1), DraftRequest(0, 0, 2, 13)):
        assert isinstance(drafter.handle(late, 2.0)[0], Ignored)
    assert drafter.sessions[0].epoch == ERA + 1
    assert drafter.handle(Leave(0, 0), 3.0) == [Released(0, 0)]  # of the whole request


def test_requests_replace_predecessors_that_never_left() -> None:
    drafter = hub(admit=AtMost(1))
    drafter.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0)
    assert drafter.handle(DraftRequest(0, 1, 1, 21, opening=True), 1.0) == []
    assert (drafter.sessions[0].request, len(drafter.waiting), set(drafter.cold)) == (1, 1, {0})


def test_refusals_apply_to_their_era_only() -> None:
    drafter, station = hub(admit=AtMost(0)), target()
    step(station, 1.0)
    assert drafter.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0)[0].epoch == 0  # type: ignore[union-attr]
    alone_in_vain = target()
    alone(alone_in_vain)
    probe = tell_due(alone_in_vain, 8.0)[0]
    alone_in_vain.handle(Draft(0, 0, probe.epoch, 11, 0), 8.1)  # type: ignore[union-attr]
    assert isinstance(alone_in_vain.handle(Refusal(0, 0, "full"), 8.2)[0], Ignored)
    assert alone_in_vain.handle(Refusal(0, 0, "full", ERA * 3), 8.3) == []
    assert alone_in_vain.sessions[0].alone


def test_a_busy_target_leaves_where_it_asked_after_its_refusal() -> None:
    station = target(patience=Patience(), overlap=Ahead(busy=True))
    assert step(station, 1.0) == [DraftRequest(0, 0, 1, 11, opening=True, tokens=29)]
    for base, draft in ((11, 1), (12, 1)):
        station.handle(Draft(0, 0, 1, base, draft), 1.5)
    assert [one.epoch for one in step(station, 2.0) if isinstance(one, DraftRequest)] == [2]
    assert station.handle(Refusal(0, 0, "full"), 2.5) == [Leave(0, 0)]


def test_a_target_that_starts_again_is_refused_as_itself_too() -> None:
    station = VerifierStation("verifier.1", ResolvedVerifiers(patience=PATIENT))
    station.handle(Restarted(2), 0.0)
    station.handle(Join(0, 0, 10, 30), 0.0)
    opening = step(station, 1.0)[0]
    assert isinstance(opening, DraftRequest)
    assert opening.epoch == 2 * INCARNATION + 1
    refusal = hub(admit=AtMost(0)).handle(opening, 1.5)[0]
    assert isinstance(refusal, Refusal)
    assert station.handle(refusal, 2.0) == []
    assert station.sessions[0].alone


# Two regressions.


def test_new_epochs_during_a_prefill_do_not_repeat_it() -> None:
    drafter = hub(overlap=Ahead())
    drafter.handle(DraftRequest(0, 0, 1, 11, opening=True, tokens=20), 0.0)
    drafter.plan(0.0)
    drafter.handle(DraftRequest(0, 0, 2, 12, tokens=19), 1.0)  # the target went on by itself
    ended(drafter, 2.0)
    plans = []
    for _ in range(3):
        plan = started(drafter, 3.0)
        plans.append((plan.kind, plan.members[0].epoch, plan.members[0].base))
        ended(drafter, 3.0)
    # The first draft was planned with the prefill; it is bound to the session as it is now.
    assert plans == [("draft", 2, 12), ("draft", 2, 13), ("draft", 2, 14)]


def test_empty_grants_are_answered_at_once_without_a_prefill() -> None:
    drafter = hub()
    assert drafter.handle(DraftRequest(0, 0, 1, 11, opening=True, tokens=0), 0.0) == [Draft(0, 0, 1, 11, 0)]
    assert not drafter.ready
    assert drafter.handle(DraftRequest(0, 0, 2, 12, tokens=0), 1.0) == [Draft(0, 0, 2, 12, 0)]
    drafter.handle(DraftRequest(0, 0, 3, 13, tokens=2), 2.0)
    kinds = [(step.kind, step.members[0].base, step.members[0].tokens) for step in run_all(drafter, 3.0)]
    assert kinds == [("prefill", 0, 12), ("draft", 13, 2)]


# Epochs.


@given(st.integers(0, 1 << 60))
def test_eras_follow_each_other_and_begin_with_an_opening(epoch: int) -> None:
    era = new_era(epoch)
    assert epoch < era == era_of(era) == era_of(era + 1)
    assert era_of(epoch) <= epoch
    assert era - era_of(epoch) == ERA


def test_optional_fields_do_not_lengthen_earlier_messages() -> None:
    """An epoch is written only if it differs from the default."""
    assert encode(Leave(1, 2)) == b"\x83\xa4type\xa5leave\xa3tag\x01\xa7request\x02"
    assert len(encode(Leave(1, 2, 3))) > len(encode(Leave(1, 2)))
    assert b"epoch" not in encode(Refusal(1, 2, "full"))


@pytest.mark.parametrize("incarnation", [1, 7])
def test_views_of_restarted_drafters_are_newer(incarnation: int) -> None:
    resolved = ResolvedDrafters(count=2, route=RoundRobin(), depth=3)
    before, after = DrafterStation("drafter.2", resolved, 1), DrafterStation("drafter.2", resolved, 1)
    before.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0)
    newest = max(one.request for now_s in (1.0, 2.0) for one in step(before, now_s) if isinstance(one, View))
    view = after.handle(Restarted(incarnation), 0.0)[0]
    assert view.request > newest
    assert view.waiting == 0
