"""What carries frames between nodes: the interface of `sockets.py`, and of a network in memory in `tests/fakes/`."""

from collections import Counter
from collections.abc import Container, Sequence
from typing import Protocol

import msgspec

from engine.runtime.actions import Action, Cut, Deliver, Lost, Opened, Send, Turned
from engine.runtime.exchange import Exchange


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A frame that came in at a port, and when. `user`: as whom its sender is authenticated; empty for nobody."""

    port: int
    peer: bytes
    frame: bytes
    time_s: float
    user: str = ""


class Transport(Protocol):
    """Carries frames. It belongs to one thread, but for `wake`; nothing in it blocks, but for `poll`."""

    @property
    def counts(self) -> Counter[str]:
        """What was refused or closed at the door before it was a frame, and why."""

    def poll(self, timeout_s: float) -> list[Arrived]:
        """Return what has arrived; if nothing has, wait for it, or for `wake`, at most so long."""

    def wake(self) -> None:
        """Let a `poll` that waits return; from any thread, and after `close`, too, where nothing waits any more."""

    def send(self, send: Send) -> bool:
        """Send a frame; False if that peer is gone, or reads so little that its queue is full."""

    def address_of(self, peer: bytes) -> str:
        """From where a peer of the door is connected, for whoever runs the node; empty where that is not known."""

    def cut(self, peer: bytes) -> None:
        """Close the connection of a peer of the door; what was sent to it before may still arrive."""

    def tidy(self, known: Container[bytes]) -> Counter[str]:
        """Do what is due: close connections of the door that are `known` to nobody, call again where that was given up.

        To be called several times a second. Returns lines for whoever runs the node, and how often each is due.
        """

    def gone(self) -> list[bytes]:
        """Return the peers of the door whose connections have ended since this was asked last."""

    def close(self) -> None:
        """Close everything; what was sent has half a second to leave."""


def carry_out(
    actions: Sequence[Action], exchange: Exchange, transport: Transport, now_s: float
) -> list[Deliver | Opened | Lost | Turned]:
    """Send and cut as asked; return, in order, what concerns the node itself.

    Whom nothing can be sent to is lost, and what follows from that is carried out, too.
    """
    concerning: list[Deliver | Opened | Lost | Turned] = []
    left = list(actions)
    while left:
        action = left.pop(0)
        if isinstance(action, Send):
            if not transport.send(action):
                left += exchange.lost(action.port, action.peer, now_s)
        elif isinstance(action, Cut):
            transport.cut(action.peer)
        else:
            concerning.append(action)
    return concerning
