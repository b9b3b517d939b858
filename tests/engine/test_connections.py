"""Servers and clients without sockets: access, tags of each peer, and lost connections."""

from typing import Any

import pytest
from msgspec.structs import replace

from specfleet.engine.net.actions import LEASE_S, Action, Lost, Opened, Rejected, Send
from specfleet.engine.net.client import PATIENCE_S, TAKEN_S, ClientEnd
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import VERSION, pack, parse
from specfleet.engine.net.handshake import LIVES, Alive, Bye, Denied, Unknown, Welcome
from specfleet.engine.net.server import ServerEnd
from specfleet.fleet.errors import InputError
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Refusal, View
from tests.helpers.connecting import connected, content_of, delivered, frame_of, said, welcomed
from tests.helpers.toys import toy_fleet

FLEET = toy_fleet()
OPENING = DraftRequest(0, 0, 1, 9, opening=True)


def asks(server: ServerEnd, client: ClientEnd, peer: bytes, message: DraftRequest | Leave) -> list[Action]:
    return server.receive(peer, frame_of(client.send(message, content_of(message), 0.0)), 0.0)


def test_messages_pass_under_tags_of_the_fleet() -> None:
    server = ServerEnd(FLEET)
    clients = [connected(FLEET, server, number, b"peer %d" % number) for number in (0, 1)]
    for number, client in enumerate(clients):
        request = replace(OPENING, tag=number)
        frame = frame_of(client.send(request, content_of(request), 0.0))
        assert parse(frame)[0] == OPENING  # both have tag 0: their first stream
        assert delivered(server.receive(b"peer %d" % number, frame, 0.0)) == [request]
    draft = Draft(1, 0, 1, 9, 4)
    (send,) = server.send(draft, Content([5, 6, 7, 8]))
    assert isinstance(send, Send)
    assert send.peer == b"peer 1"
    assert delivered(clients[1].receive(send.frame, 0.0)) == [draft]


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"drafters": {"depth": 3}}, "drafters.depth is 4 at the drafter and 3 at the verifier; start both"),
        ({"verifiers": {"count": 3}}, "verifiers.count is 2 at the drafter and 3 at the verifier; start both"),
        ({"verifiers": {"kv_tokens": 96}}, "verifiers.kv_tokens is 0 at the drafter and 96 at the verifier"),
        ({"workload": {"temperature": 0.5}}, "workload.temperature is 0.0 at the drafter and 0.5 at the verifier"),
    ],
)
def test_another_scenario_is_denied_with_the_difference(tables: Any, reason: str) -> None:
    client = ClientEnd(toy_fleet(**tables), 0, 1, name="here:5555")
    (rejected,) = welcomed(ServerEnd(FLEET), client)
    assert isinstance(rejected, Rejected)
    assert rejected.reason.startswith(f"here:5555: {reason}")
    assert "\n" not in rejected.reason
    assert client.tick(100.0) == []  # it does not connect again


def test_a_number_beyond_the_fleet_is_refused_at_both_ends() -> None:
    with pytest.raises(InputError, match=r"verifier 3: the scenario has verifiers.count = 2"):
        ClientEnd(FLEET, 2, 1)
    client = ClientEnd(FLEET, 0, 1)
    client.hello = replace(client.hello, number=7)
    (denied,) = said(ServerEnd(FLEET).receive(b"peer", frame_of(client.tick(0.0)), 0.0))
    assert denied.reason == "there is no verifier 8; the scenario has verifiers.count = 2"


def test_another_version_of_the_protocol_is_rejected_in_one_line() -> None:
    newer = bytearray(pack(Alive()))
    newer[2] = VERSION + 1
    (denied,) = said(ServerEnd(FLEET).receive(b"peer", bytes(newer), 0.0))
    assert denied.reason == f"the drafter speaks version {VERSION} of the protocol, and not {VERSION + 1}"
    (rejected,) = ClientEnd(FLEET, 0, 1).receive(bytes(newer), 0.0)
    assert isinstance(rejected, Rejected)


@pytest.mark.parametrize("message", [Draft(0, 0, 1, 9, 4), Refusal(0, 0, "no"), Welcome(0)], ids=str)
def test_a_server_takes_no_messages_of_drafters(message: Any) -> None:
    server = ServerEnd(FLEET)
    connected(FLEET, server)
    assert server.receive(b"peer", pack(message), 0.0) == []
    assert server.counts["out of place"] == 1


@pytest.mark.parametrize(
    ("frame", "what", "line"),
    [
        (b"no frame at all", "malformed", "malformed, 15 bytes are less than a header"),
        (pack(replace(OPENING, tag=FLEET.workload.requests)), "out of place", "out of place, tag 10"),
        (pack(OPENING, Content([1] * 8)), "malformed", "malformed, number of tokens"),
        (pack(Denied(0, "\x1b[2J")), "out of place", "out of place, Denied"),
    ],
)
def test_what_a_server_cannot_use_is_dropped_counted_and_logged(frame: bytes, what: str, line: str) -> None:
    server, lines = ServerEnd(FLEET), list[str]()
    client = connected(FLEET, server)
    server.log = lines.append
    for _ in range(100):  # a peer may be broken, but is not put out
        assert server.receive(b"peer", frame, 0.0) == []
    assert server.counts[what] == 100
    assert lines == [f"dropped what target 1 sends: {line}"] * 100
    assert delivered(asks(server, client, b"peer", OPENING)) == [OPENING]


@pytest.mark.parametrize("frame", [b"no frame at all", pack(Draft(77, 0, 1, 9, 4)), pack(View(0, 1, 0))])
def test_what_a_client_cannot_use_is_dropped_and_logged(frame: bytes) -> None:
    client = connected(FLEET, ServerEnd(FLEET))
    (lost,) = client.receive(frame, 0.0)
    assert isinstance(lost, Lost)
    assert lost.reason.startswith("the drafter sends what is dropped: ")
    assert client.state == "open"


def test_a_taken_number_is_refused_unless_its_peer_is_silent() -> None:
    server = ServerEnd(FLEET)
    connected(FLEET, server)
    other, later = ClientEnd(FLEET, 0, 2), ClientEnd(FLEET, 0, 3)
    assert welcomed(server, other, 0.0, b"other") == []  # the peer with this number may have just died
    (rejected,) = welcomed(server, other, TAKEN_S + 1.0, b"other")
    assert isinstance(rejected, Rejected)
    assert rejected.reason.endswith("verifier 1 is connected already; give each a number of its own")
    server.tick(TAKEN_S + 2.0)
    assert welcomed(server, later, TAKEN_S + 2.0, b"later") == [Opened()]


def test_only_the_process_that_has_a_seat_takes_it_over() -> None:
    """Over a new connection, before the end of the old one is noticed."""
    server, client, other = ServerEnd(FLEET), ClientEnd(FLEET, 0, 5), ClientEnd(FLEET, 0, 6)
    welcomed(server, client, 0.0, b"a")
    asks(server, client, b"a", OPENING)
    (denied,) = said(server.receive(b"b", frame_of(other.tick(0.0)), 0.0))
    assert denied == Denied(0, "verifier 1 is connected already; give each a number of its own", later=True)
    early = pack(client.hello)
    client.lost(1.0)
    again = server.receive(b"c", frame_of(client.tick(9.0)), 9.0)
    assert delivered(again) == [Leave(0, 0, 1)]
    assert said(again) == [Welcome(1)]
    assert said(server.receive(b"a", early, 9.0)) == [Denied(0, "verifier 1 has connected again since")]
    assert list(server.peers) == [b"c"]


def test_a_restarted_target_has_tags_behind_a_router_too() -> None:
    fleet = toy_fleet(drafters={"count": 2, "route": "round-robin"})
    front, drafter, router = ServerEnd(fleet, drafter=None), ServerEnd(fleet), ClientEnd(fleet, 0, 1, "router")
    welcomed(drafter, router)
    for life in range(1, LIVES + 1):
        target = ClientEnd(fleet, 1, life)
        welcomed(front, target, life * LEASE_S, b"%d" % life)
        (event,) = delivered(asks(front, target, b"%d" % life, replace(OPENING, tag=1)))
        assert fleet.target_of(event.tag) == 1
        assert delivered(asks(drafter, router, b"peer", event)) == [event]
        front.receive(b"%d" % life, pack(Bye()), 0.0)
    (denied,) = said(front.receive(b"last", frame_of(ClientEnd(fleet, 1, LIVES + 1).tick(0.0)), 9999.0))
    assert denied.reason == "verifier 2 has been started too often; start the router again"


@pytest.mark.parametrize("how", ["bye", "silent", "unreachable"])
def test_the_sessions_of_a_lost_peer_leave(how: str) -> None:
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    asks(server, client, b"peer", OPENING)
    gone = {
        "bye": lambda: server.receive(b"peer", pack(Bye()), 0.0),
        "silent": lambda: server.tick(LEASE_S + 0.1),
        "unreachable": lambda: server.lost(b"peer"),
    }[how]()
    assert delivered(gone) == [Leave(0, 0, 1)]
    assert server.send(Draft(0, 0, 1, 9, 4), NOTHING) == []
    assert not server.peers
    assert not server.homes


def test_an_opening_lets_the_open_session_leave_first() -> None:
    """For the station it would be a program error; a peer must not be able to cause that."""
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    asks(server, client, b"peer", OPENING)
    later = replace(OPENING, request=3)
    server.send(Draft(0, 0, 1, 9, 0), NOTHING)
    assert delivered(asks(server, client, b"peer", later)) == [Leave(0, 0, 1), later]
    assert delivered(asks(server, client, b"peer", later)) == []  # a repetition changes nothing
    server.send(Draft(0, 3, 1, 9, 0), NOTHING)
    again = replace(later, epoch=4)
    assert delivered(asks(server, client, b"peer", again)) == [Leave(0, 3, 1), again]


def test_a_session_with_a_malformed_draft_decodes_alone_at_once() -> None:
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    asks(server, client, b"peer", OPENING)
    actions = client.receive(pack(Draft(0, 0, 1, 9, 4), Content([1, 1], [0, 0])), 0.0)
    reason = "the drafter sends a draft that cannot be verified: nodes of a tree in a chain"
    assert actions[0] == Lost(reason)
    assert (said(actions), delivered(actions)) == ([Leave(0, 0)], [Refusal(0, 0, reason)])


def test_a_client_calls_until_welcomed_and_sends_signs_of_life() -> None:
    server, client = ServerEnd(FLEET), ClientEnd(FLEET, 0, 1)
    assert client.tick(0.0) != []
    assert client.tick(0.1) == []
    welcomed(server, client, 1.0)
    now_s = 1.0
    for _ in range(40):  # far longer than a lease
        now_s += 1.0
        answer = frame_of(server.receive(b"peer", frame_of(client.tick(now_s)), now_s))
        assert client.receive(answer, now_s) == []
        assert server.tick(now_s) == []


@pytest.mark.parametrize("how", ["bye", "unknown", "silent", "unreachable"])
def test_a_lost_client_refuses_its_sessions_and_calls_again(how: str) -> None:
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    asks(server, client, b"peer", OPENING)
    lost = {
        "bye": lambda: client.receive(pack(Bye()), 1.0),
        "unknown": lambda: client.receive(pack(Unknown()), 1.0),
        "silent": lambda: client.tick(LEASE_S + 1.0),
        "unreachable": lambda: client.lost(1.0),
    }[how]()
    assert isinstance(lost[0], Lost)
    (refusal,) = delivered(lost)
    assert (refusal.tag, refusal.request) == (0, 0)
    assert delivered(client.send(OPENING, NOTHING, 1.0)) == [Refusal(0, 0, "the drafter is not there")]
    assert client.send(Leave(0, 0), NOTHING, 1.0) == []
    assert welcomed(ServerEnd(FLEET), client, LEASE_S + 9.0) == [Opened("the drafter is back")]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_client_denied_after_a_loss_calls_again(goes_on: bool) -> None:
    client = ClientEnd(FLEET, 0, 1, goes_on=goes_on)
    if not goes_on:
        welcomed(ServerEnd(FLEET), client)
        client.lost(1.0)
    (lost,) = welcomed(ServerEnd(toy_fleet(drafters={"depth": 3})), client, 9.0)
    assert isinstance(lost, Lost)
    assert lost.reason.startswith("the drafter: drafters.depth is 3 at the drafter and 4 at the verifier")
    assert client.tick(9.0 + LEASE_S) == []
    (opened,) = welcomed(ServerEnd(FLEET), client, 10.0 + LEASE_S)
    assert isinstance(opened, Opened)


def test_an_overdue_draft_is_refused_and_its_session_leaves() -> None:
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    asks(server, client, b"peer", OPENING)
    client.received_s = client.sent_s = PATIENCE_S
    overdue = client.tick(PATIENCE_S + 0.5)
    assert said(overdue) == [Leave(0, 0)]
    assert delivered(overdue) == [Refusal(0, 0, "the drafter sent no draft within 60 s")]
    assert Lost("the drafter sent no draft within 60 s") in overdue


def test_an_earlier_draft_does_not_answer_a_later_request() -> None:
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    for epoch in (1, 2):
        client.send(DraftRequest(0, 0, epoch, 8 + epoch, opening=epoch == 1), NOTHING, 0.0)
    client.receive(pack(Draft(0, 0, 1, 9, 4)), 0.0)
    client.received_s = PATIENCE_S
    assert len(delivered(client.tick(PATIENCE_S + 0.5))) == 1


def test_a_welcome_of_an_earlier_attempt_opens_nothing() -> None:
    server = ServerEnd(FLEET)
    client = connected(FLEET, server)
    client.lost(0.0)
    assert client.receive(pack(Welcome(0)), 0.0) == []
    assert client.state == "calling"


def test_joins_and_leaves_are_logged_without_control_characters() -> None:
    server, client, lines = ServerEnd(FLEET), ClientEnd(FLEET, 0, 1), list[str]()
    server.log, server.names = lines.append, {b"peer": "192.0.2.7, key alice"}
    server.receive(b"peer", frame_of(client.tick(0.0)), 0.0)
    server.receive(b"peer", pack(Bye()), 0.0)
    other = ClientEnd(FLEET, 1, 1)
    other.hello = replace(other.hello, terms={**other.hello.terms, "seed": "\x1b[2J\nbad"})
    server.receive(b"other", frame_of(other.tick(0.0)), 0.0)
    assert lines[:2] == [f"target 1 (192.0.2.7, key alice) {how}" for how in ("joins", "is gone: it has ended")]
    assert lines[2].startswith("target 2 is refused: seed is 0 at the drafter and ?[2J bad at the verifier")
