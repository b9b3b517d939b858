"""Laws of single stations, in small examples."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.policies.aligned import Rollback
from specfleet.fleet.policies.order import Fifo, Order, Priority
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.warm_up import AfterIdle
from specfleet.fleet.scenario.resolved import LocalDrafts, ResolvedDrafters, ResolvedVerifiers
from specfleet.fleet.stations.aligned import AlignedStation
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Join,
    Leave,
    Refusal,
    Released,
    StationEvent,
    StepDone,
)
from specfleet.fleet.stations.station import WAIT, Station
from specfleet.fleet.stations.verifier import VerifierStation
from tests.helpers import steps
from tests.helpers.steps import ended, started


def drafter(**policies: object) -> DrafterStation:
    return DrafterStation("drafter", ResolvedDrafters(**policies))  # type: ignore[arg-type]


def opening(tag: int, request: int = 0, priority: int = 0) -> DraftRequest:
    """A verifier's request after the prefill of a 10-token prompt."""
    return DraftRequest(tag, request, epoch=1, base=11, opening=True, priority=priority)


def run_all(station: Station) -> list[tuple[str, int]]:
    """(kind, tag) of all steps until the station waits, each done as soon as begun."""
    return [(step.kind, step.members[0].tag) for step in steps.run_all(station)]


def drafted(shown: Sequence[tuple[str, int]]) -> list[int]:
    return [tag for kind, tag in shown if kind == "draft"]


def snapshot(station: Station) -> tuple[object, ...]:
    return dict(station.sessions), list(station.waiting), list(station.program), station.running


def verifier_with_draft(accepting: bool = True) -> VerifierStation:
    """A verifier after prefill, with a draft of five tokens in its buffer."""
    station = VerifierStation("verifier.1", ResolvedVerifiers())
    station.handle(Join(0, 0, prompt_tokens=10, new_tokens=20), 0.0)
    started(station)
    ended(station)
    if accepting:
        station.handle(Draft(0, 0, epoch=1, base=11, tokens=5), 0.0)
    return station


def test_a_request_goes_through_prefill_draft_and_verification() -> None:
    verifier, hub = VerifierStation("verifier.1", ResolvedVerifiers()), drafter()
    assert verifier.handle(Join(0, 0, prompt_tokens=10, new_tokens=7), 0.0) == []
    assert started(verifier).kind == "prefill"
    assert ended(verifier) == [DraftRequest(0, 0, epoch=1, base=11, opening=True)]
    assert hub.handle(opening(0), 0.0) == []
    prefill = started(hub)
    assert (prefill.kind, prefill.members[0].base, prefill.members[0].tokens) == ("prefill", 0, 10)
    assert ended(hub) == []
    assert started(hub).kind == "draft"
    assert ended(hub) == [Draft(0, 0, epoch=1, base=11, tokens=5)]
    assert verifier.handle(Draft(0, 0, epoch=1, base=11, tokens=5), 0.0) == []
    assert started(verifier).members[0].tokens == 5
    assert ended(verifier, 0.0, Outcome(accepted=2)) == [DraftRequest(0, 0, epoch=2, base=14)]
    assert hub.handle(DraftRequest(0, 0, epoch=2, base=14), 0.0) == []
    assert run_all(hub) == [("draft", 0)]
    verifier.handle(Draft(0, 0, epoch=2, base=14, tokens=5), 0.0)
    started(verifier)
    assert ended(verifier, 0.0, Outcome(accepted=5)) == [Leave(0, 0), Released(0, 0), Finished(0, 0)]
    assert hub.handle(Leave(0, 0), 0.0) == [Released(0, 0)]
    assert not hub.sessions
    assert not verifier.sessions


def test_a_draft_has_the_tokens_that_its_step_found() -> None:
    hub = drafter()
    hub.handle(opening(0), 0.0)
    steps.run_step(hub)
    assert steps.run_step(hub, 0.0, Outcome(drafted=2)) == [Draft(0, 0, epoch=1, base=11, tokens=2)]
    assert hub.sessions[0].tail == 2


@pytest.mark.parametrize(("order", "served"), [(Fifo(), [0, 1, 2, 3]), (Priority(), [1, 3, 0, 2])])
def test_requests_are_served_by_the_order_then_by_arrival(order: Order, served: list[int]) -> None:
    hub = drafter(order=order)
    for tag, priority in ((0, 1), (1, 2), (2, 1), (3, 2)):
        hub.handle(opening(tag, priority=priority), 0.0)
    assert drafted(run_all(hub)) == served


def test_a_prefill_and_its_draft_are_not_torn_apart() -> None:
    hub = drafter(order=Priority())
    hub.handle(opening(0), 0.0)
    assert started(hub).kind == "prefill"
    hub.handle(opening(1, priority=9), 0.0)
    ended(hub)
    assert run_all(hub) == [("draft", 0), ("prefill", 1), ("draft", 1)]


def test_one_step_runs_at_a_time() -> None:
    hub = drafter()
    hub.handle(opening(0), 0.0)
    started(hub)
    hub.handle(opening(1), 0.0)
    assert hub.plan(0.0) == WAIT
    assert not hub.ready


def test_steps_use_the_prefix_at_their_start() -> None:
    """Two verified prefixes reach the buffer before the first is served: the draft continues the newer one."""
    hub = drafter()
    hub.handle(opening(0), 0.0)
    run_all(hub)
    hub.handle(DraftRequest(0, 0, epoch=2, base=13), 0.0)
    hub.handle(DraftRequest(0, 0, epoch=3, base=15), 0.0)
    member = started(hub).members[0]
    assert (member.epoch, member.base) == (3, 15)


@given(st.integers(0, 5), st.integers(0, 5))
def test_opening_a_tag_twice_is_an_error(first: int, second: int) -> None:
    """The open request, or an older one, may be repeated; a later one would never be answered."""
    event = Join(0, second, 10, 20)
    for station in (
        VerifierStation("verifier.1", ResolvedVerifiers()),
        AlignedStation("verifier.1", ResolvedVerifiers(drafts=LocalDrafts(5), aligned=Rollback())),
    ):
        station.handle(Join(0, first, 10, 20), 0.0)
        before = snapshot(station)
        if second > first:
            with pytest.raises(ValueError, match=f"request {second} opens tag 0, whose request {first} is open"):
                station.handle(event, 0.0)
        else:
            assert [type(instruction) for instruction in station.handle(event, 0.0)] == [Ignored]
        assert snapshot(station) == before


STALE: dict[str, list[StationEvent]] = {
    "verifier.1": [
        Draft(0, 0, epoch=1, base=11, tokens=5),  # the one that waits already
        Draft(0, 0, epoch=0, base=10, tokens=5),  # an epoch that is over
        Draft(0, 0, epoch=1, base=12, tokens=5),  # not where the tail ends
        Draft(0, 1, epoch=1, base=11, tokens=5),  # another request
        Draft(7, 0, epoch=1, base=11, tokens=5),  # an unknown tag
        Refusal(0, 1, "full"),
        Refusal(7, 0, "full"),
        Join(0, 0, 10, 20),  # the request that is open
        StepDone(99, (Outcome(),), 1.0),
    ],
    "drafter": [
        DraftRequest(0, 0, epoch=2, base=13),  # the one that waits already
        DraftRequest(0, 0, epoch=1, base=15),
        DraftRequest(0, 0, epoch=3, base=13),
        DraftRequest(0, 1, epoch=3, base=15),
        DraftRequest(7, 0, epoch=3, base=15),
        opening(0),
        Leave(0, 1),
        Leave(7, 0),
        StepDone(99, (Outcome(),), 1.0),
    ],
}


@pytest.mark.parametrize(("name", "message"), [(name, message) for name in STALE for message in STALE[name]])
def test_stale_messages_change_nothing(name: str, message: StationEvent) -> None:
    hub = drafter()
    hub.handle(opening(0), 0.0)
    run_all(hub)
    hub.handle(DraftRequest(0, 0, epoch=2, base=13), 0.0)
    station = hub if name == hub.name else verifier_with_draft()
    before = snapshot(station)
    assert [type(instruction) for instruction in station.handle(message, 0.0)] == [Ignored]
    assert snapshot(station) == before


def test_a_finished_request_is_not_decoded_again() -> None:
    station = VerifierStation("verifier.1", ResolvedVerifiers(speculates=False))
    request = Join(0, 0, prompt_tokens=10, new_tokens=3)
    station.handle(request, 0.0)
    assert run_all(station) == [("prefill", 0), ("decode", 0), ("decode", 0)]
    station.handle(request, 0.0)
    assert run_all(station) == []


@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_target_may_leave_during_a_running_step(steps_before: int) -> None:
    hub = drafter()
    hub.handle(opening(0), 0.0)
    hub.handle(opening(1), 0.0)
    for _ in range(steps_before):
        started(hub)
        ended(hub)
    started(hub)
    assert hub.handle(Leave(0, 0), 0.0) == [Released(0, 0)]
    assert ended(hub) == []
    assert drafted(run_all(hub)) == [1]


@pytest.mark.parametrize("steps_before", [0, 1])
def test_steps_of_ended_requests_leave_the_next_unchanged(steps_before: int) -> None:
    """Both requests are in epoch 1: the old one's outcome must not apply to the new one."""
    hub = drafter()
    hub.handle(opening(0, request=0), 0.0)
    for _ in range(steps_before):
        started(hub)
        ended(hub)
    started(hub)
    hub.handle(Leave(0, 0), 0.0)
    hub.handle(opening(0, request=1), 0.0)
    assert ended(hub) == []
    assert hub.sessions[0].tail == 0
    assert run_all(hub) == [("prefill", 0), ("draft", 0)]


def test_a_refused_target_finishes_alone() -> None:
    station = verifier_with_draft(accepting=False)
    assert station.handle(Refusal(0, 0, "full"), 0.0) == []
    assert isinstance(station.handle(Draft(0, 0, epoch=1, base=11, tokens=5), 0.0)[0], Ignored)
    for _ in range(18):
        assert started(station).kind == "decode"
        assert ended(station) == []
    assert started(station).kind == "decode"
    assert ended(station) == [Released(0, 0), Finished(0, 0)]


def test_requests_of_one_token_need_no_drafter() -> None:
    station = VerifierStation("verifier.1", ResolvedVerifiers())
    station.handle(Join(0, 0, prompt_tokens=10, new_tokens=1), 0.0)
    started(station)
    assert ended(station) == [Released(0, 0), Finished(0, 0)]


def test_the_idle_gap_is_the_time_without_anything_to_do() -> None:
    hub = drafter()
    hub.handle(opening(0), 2.0)
    assert started(hub, 2.0).idle_gap_s == 2.0
    ended(hub, 3.0)
    assert started(hub, 3.0).idle_gap_s == 2.0  # the draft belongs to the same group
    ended(hub, 4.0)
    hub.handle(DraftRequest(0, 0, epoch=2, base=13), 4.5)
    assert started(hub, 4.5).idle_gap_s == 0.5


def test_warm_up_runs_once_after_a_long_gap() -> None:
    hub = drafter(warm_up=AfterIdle(idle_gap_s=1.0, tokens=3))
    hub.handle(opening(0), 0.5)
    assert started(hub, 0.5).kind == "prefill"
    ended(hub, 1.0)
    started(hub, 1.0)
    ended(hub, 2.0)
    hub.handle(DraftRequest(0, 0, epoch=2, base=13), 3.0)
    warm_up = started(hub, 3.0)
    assert (warm_up.kind, warm_up.members[0].tokens, warm_up.warm_tokens) == ("warm_up", 3, 0)
    assert ended(hub, 3.5) == []
    draft = started(hub, 3.5)
    assert (draft.kind, draft.idle_gap_s, draft.warm_tokens) == ("draft", 1.0, 3)
