"""The protocol of short requests, explored exhaustively (`tests/helpers/explored.py`).

All orders of deliveries and ends of steps are visited, for every pattern of right and wrong guesses. The laws: texts
are those of plain decoding, no current draft is dropped and no old one taken, both ends agree on the drafts, no draft
exceeds its request, messages in flight are bounded, no state repeats on a path, and every final state has complete
requests and no rest.
"""

from typing import Any

import msgspec
import pytest

from specfleet.engine.net.content import Content
from specfleet.engine.node.pending import PendingDrafts
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.session import Session
from specfleet.fleet.stations.verifier import VerifierStation
from tests.helpers.explored import Explored, State, explore
from tests.helpers.marks import slow
from tests.helpers.stars import star


def ahead(least: int = 1, busy: bool = False) -> dict[str, Any]:
    return {"overlap": {"policy": "ahead", "least": least, "busy": busy}}


def in_turn(depth: int) -> dict[str, Any]:
    return {"depth": depth}


def explored(drafters: dict[str, Any], new_tokens: tuple[int, ...], tags: int = 1) -> Explored:
    fleet = resolve(star(drafters=drafters, verifiers={"count": 1}, workload={"requests": 1}))
    return explore(State(fleet, 2, new_tokens, tags))


@pytest.mark.parametrize(
    ("drafters", "new_tokens", "tags"),
    [
        (ahead(1), (6,), 1),
        (ahead(2), (6,), 1),
        (ahead(3), (6,), 1),
        (ahead(1, busy=True), (4,), 1),
        (ahead(2, busy=True), (4,), 1),
        (ahead(3, busy=True), (4,), 1),
        (ahead(1), (3, 1, 3), 1),
        (ahead(2, busy=True), (3, 3), 1),
        (ahead(1), (5,), 1),
        (ahead(1, busy=True), (4, 1), 1),
        (ahead(1), (3,), 2),
        (in_turn(1), (6, 6), 1),
        (in_turn(2), (6, 6), 1),
        (in_turn(3), (6, 6), 1),
        (in_turn(2), (3,), 2),
        slow(in_turn(3), (5,), 2),
        slow(ahead(1), (9,), 1),
        slow(ahead(3), (10,), 1),
        slow(ahead(1, busy=True), (5,), 1),
        slow(ahead(2, busy=True), (5,), 1),
        slow(ahead(3, busy=True), (5,), 1),
        slow(ahead(1), (4,), 2),
        slow(ahead(2, busy=True), (3,), 2),
        slow(in_turn(3), (3, 1), 2),
    ],
)
def test_short_requests_are_lossless_in_every_order(
    drafters: dict[str, Any], new_tokens: tuple[int, ...], tags: int
) -> None:
    found = explored(drafters, new_tokens, tags)
    assert found.ends > 0
    assert found.states > 25, "or little has been looked at"


def keep_every_tail(_self: PendingDrafts, _tag: int, _drafted: int, outcome: Outcome, _token: int) -> Outcome:
    return msgspec.structs.replace(outcome, matches=True)


def forget_the_end(self: VerifierStation, session: Session, now_s: float) -> None:
    if session.tail >= 2:
        ask(self, session, now_s)


def never_go_on(self: DrafterStation, tag: int, _priority: int, _now_s: float) -> None:
    if self.sessions[tag].tail == 0:
        draft(self, tag, 0, 0.0)


ask, draft = VerifierStation._ask, DrafterStation._ask


@pytest.mark.parametrize(
    ("owner", "name", "fault", "message"),
    [
        (PendingDrafts, "resolved", keep_every_tail, "station and tail disagree"),
        (PendingDrafts, "receive", lambda *_: None, "station and tail disagree"),
        (PendingDrafts, "take", lambda *_: Content([]), "the tail is another's"),
        (VerifierStation, "_ask", forget_the_end, "nothing can happen any more, and this is left"),
        (DrafterStation, "_ask", never_go_on, "nothing can happen any more, and this is left"),
    ],
)
def test_a_fault_in_the_protocol_is_found(
    owner: type, name: str, fault: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault)
    with pytest.raises(AssertionError, match=message):
        explored(ahead(2), (4,))
