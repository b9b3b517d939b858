"""Connections of clients and servers without sockets."""

from typing import Any

from specfleet.engine.net.actions import Action, Deliver, Send
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import parse
from specfleet.engine.net.server import ServerEnd
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import DraftRequest, Leave


def content_of(message: DraftRequest | Leave) -> Content:
    """Return content that fits a message."""
    if isinstance(message, Leave):
        return NOTHING
    return Content([1] * (message.base if message.opening else 1))


def said(actions: list[Action]) -> list[Any]:
    """Return the messages of the frames to send."""
    return [parse(action.frame)[0] for action in actions if isinstance(action, Send)]


def delivered(actions: list[Action]) -> list[Any]:
    """Return the events for the station."""
    return [action.event for action in actions if isinstance(action, Deliver)]


def frame_of(actions: list[Action]) -> bytes:
    """Return the only frame to send."""
    (send,) = actions
    assert isinstance(send, Send)
    return send.frame


def welcomed(server: ServerEnd, client: ClientEnd, now_s: float = 0.0, peer: bytes = b"peer") -> list[Action]:
    """Connect a client; return its actions at the answer of the server."""
    answers = server.receive(peer, frame_of(client.tick(now_s)), now_s)
    return client.receive(frame_of([answer for answer in answers if isinstance(answer, Send)]), now_s)


def connected(fleet: Fleet, server: ServerEnd, number: int = 0, peer: bytes = b"peer") -> ClientEnd:
    """Return a client that the server has welcomed."""
    client = ClientEnd(fleet, number, 1)
    welcomed(server, client, peer=peer)
    assert client.state == "open"
    return client
