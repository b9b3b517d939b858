"""What threads that send and receive have waited for a core is told with the next message that a station is told."""

import math
from typing import Any

import pytest

pytest.importorskip("zmq")

from engine.net.actions import Arrival, Arrived, Deliver
from engine.net.connections import ConnectionTable
from engine.net.content import NOTHING
from engine.net.socket_thread import SocketThread
from fleet.stations.messages import Leave

OWN_S, ZMQ_S = 0.25, 2.0  # of each look at the threads


class Wire:
    """A transport on which comes what it is given. `comes`: for each poll, what those frames lead to."""

    def __init__(self, *comes: list[list[Any]]) -> None:
        self.comes = list(comes)
        self.led: list[list[Any]] = []

    def poll(self, _timeout_s: float) -> list[Arrived]:
        self.led = self.comes.pop(0)
        return [Arrived(0, b"", b"", 0.0) for _ in self.led]

    def wake(self) -> None:
        pass


def told(wire: Wire, posts: set[int], monkeypatch: pytest.MonkeyPatch, holds: bool = False) -> list[float]:
    """What a node's station is told beside its messages, by turns of its socket thread; `posts`: those that send."""
    arrivals: list[Arrival] = []
    connections = ConnectionTable()
    monkeypatch.setattr(connections, "receive", lambda *_: wire.led.pop(0))
    monkeypatch.setattr(connections, "post", lambda *_: [])
    thread = SocketThread(connections, wire, arrivals.append, lambda: None, lambda _: None)  # type: ignore[arg-type]
    thread.due_s, thread.sending_delays = math.inf, not holds
    monkeypatch.setattr(thread.own_waits, "since_last_s", lambda: OWN_S)
    monkeypatch.setattr(thread.zmq_waits, "since_last_s", lambda: ZMQ_S)
    for turn in range(len(wire.comes)):
        if turn in posts:
            thread.post(Leave(0, 0), NOTHING)
        thread._turn()  # as its loop does
    return [arrival.core_wait_s for arrival in arrivals]


COMES = Deliver(Leave(0, 0))


def test_a_wait_is_told_once_with_the_first_message_that_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(Wire([[COMES], [COMES]]), set(), monkeypatch) == [OWN_S + ZMQ_S, 0.0]


def test_what_is_no_message_leaves_the_wait_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life, and whatever strangers say."""
    assert told(Wire([[], []], [[COMES]]), set(), monkeypatch) == [2 * (OWN_S + ZMQ_S)]


def test_what_was_waited_for_before_something_was_sent_is_told_with_what_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it was woken, and while it sent; nothing came meanwhile."""
    assert told(Wire([], [[COMES]]), {0}, monkeypatch) == [2 * OWN_S + OWN_S + ZMQ_S]
    assert told(Wire([], [[COMES]]), set(), monkeypatch) == [OWN_S + ZMQ_S]


def test_on_links_that_are_held_sending_waits_within_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(Wire([], [[COMES]]), {0}, monkeypatch, holds=True) == [OWN_S + ZMQ_S]
    kept = Deliver(Leave(0, 0), after_s=0.5)
    assert told(Wire([[kept], [COMES]]), set(), monkeypatch, holds=True) == [0.0, 0.0]
