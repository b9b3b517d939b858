"""A peer's sessions as its door sees them: which message is news, which came before, and which no honest peer sends."""

import math
from typing import Literal

from engine.net.content import NOTHING, Content
from engine.net.handshake import Ping
from engine.net.limits import Bounds, Told, request_refused
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal

Heard = Literal["news", "repeated", "inadmissible"]


class Sessions:
    """What one peer has open, by tag. `priority`: of its requests by the scenario; None where it speaks for many.

    What passes is bounded while the worker is busy: one request of a session at a time, one ping of a peer.
    """

    def __init__(self, bounds: Bounds, priority: int | None) -> None:
        self.bounds = bounds
        self.priority = priority
        self.told: dict[int, Told] = {}
        self.newest: dict[int, tuple[int, int]] = {}  # request and epoch of the last opening
        self.opened_s: dict[int, float] = {}  # when that was, until it is answered
        self.pinged = False

    def hear(self, message: DraftRequest | Leave | Ping, content: Content, now_s: float) -> tuple[Heard, list[Leave]]:
        """Judge a message; return also what the station must hear before it, if it is news.

        A request that opens before the last one has left, or once more in a later epoch, says that it has left.
        """
        told = self.told.get(message.tag)
        if isinstance(message, Ping):
            heard: Heard = "repeated" if self.pinged else "news"
            self.pinged = True
            return heard, []
        if isinstance(message, Leave):
            if content is not NOTHING:
                return "inadmissible", []
            if told is None or told.request != message.request or 0 < message.epoch < told.epoch:
                return "repeated", []
            del self.told[message.tag]
            return "news", []
        return self._opens(message, content, told, now_s) if message.opening else self._follows(message, content, told)

    def say(self, message: Message | Ping, content: Content) -> None:
        """Note an answer that is sent to the peer."""
        if isinstance(message, Ping):
            self.pinged = False
            return
        self.opened_s.pop(message.tag, None)
        told = self.told.get(message.tag)
        if told is None or told.request != message.request:
            return
        if isinstance(message, Refusal):
            del self.told[message.tag]
        elif isinstance(message, Draft) and message.epoch == told.epoch:
            told.waits, told.nodes, told.parents = False, told.nodes + len(content.tokens), content.nodes

    def leaves(self) -> list[Leave]:
        """Return what the station is to hear when the peer is gone."""
        return [Leave(tag, told.request, told.epoch) for tag, told in self.told.items()]

    def _opens(
        self, message: DraftRequest, content: Content, told: Told | None, now_s: float
    ) -> tuple[Heard, list[Leave]]:
        if (message.request, message.epoch) <= self.newest.get(message.tag, (-1, 0)):
            return "repeated", []
        if now_s - self.opened_s.get(message.tag, -math.inf) < self.bounds.again_s:
            return "repeated", []
        if request_refused(message, content, None, self.bounds, self.priority):
            return "inadmissible", []
        self.told[message.tag] = Told(message.request, message.epoch, message.base)
        self.newest[message.tag] = message.request, message.epoch
        self.opened_s[message.tag] = now_s
        return "news", [] if told is None else [Leave(message.tag, told.request, told.epoch)]

    def _follows(self, message: DraftRequest, content: Content, told: Told | None) -> tuple[Heard, list[Leave]]:
        if told is None or told.request != message.request or message.epoch <= told.epoch:
            return "repeated", []
        if request_refused(message, content, told, self.bounds, self.priority):
            return "inadmissible", []
        if told.waits and self.bounds.in_turn:
            return "inadmissible", []
        told.epoch, told.base, told.waits, told.nodes, told.parents = message.epoch, message.base, True, 0, None
        return "news", []
