"""The sessions of a peer at its server: which message is new, repeated, or inadmissible."""

import math
from typing import Literal

from engine.net.content import NOTHING, Content
from engine.net.handshake import Ping
from engine.net.limits import MessageLimits, SessionState, request_refused
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal

Judgement = Literal["new", "repeated", "inadmissible"]


class Sessions:
    """The open sessions of one peer, by tag.

    While the worker is busy, at most one request of a session and one ping of a peer wait for it.

    - `priority`: of the peer's requests; None for a router, which has requests of several priorities.
    """

    def __init__(self, bounds: MessageLimits, priority: int | None) -> None:
        self.bounds = bounds
        self.priority = priority
        self.open: dict[int, SessionState] = {}
        self.newest: dict[int, tuple[int, int]] = {}  # request and epoch of the last opening
        self.opened_s: dict[int, float] = {}  # when that was, until it is answered
        self.pinged = False

    def judge(
        self, message: DraftRequest | Leave | Ping, content: Content, now_s: float
    ) -> tuple[Judgement, list[Leave]]:
        """Judge a message; return also the Leave that the station gets before a new one.

        A request that opens a session while one is open implies that the earlier one has left.
        """
        session = self.open.get(message.tag)
        if isinstance(message, Ping):
            judgement: Judgement = "repeated" if self.pinged else "new"
            self.pinged = True
            return judgement, []
        if isinstance(message, Leave):
            if content is not NOTHING:
                return "inadmissible", []
            if session is None or session.request != message.request or 0 < message.epoch < session.epoch:
                return "repeated", []
            del self.open[message.tag]
            return "new", []
        if message.opening:
            return self._opens(message, content, session, now_s)
        return self._follows(message, content, session)

    def sent(self, message: Message | Ping, content: Content) -> None:
        """Note an answer to the peer."""
        if isinstance(message, Ping):
            self.pinged = False
            return
        self.opened_s.pop(message.tag, None)
        session = self.open.get(message.tag)
        if session is None or session.request != message.request:
            return
        if isinstance(message, Refusal):
            del self.open[message.tag]
        elif isinstance(message, Draft) and message.epoch == session.epoch:
            session.waits, session.nodes, session.parents = False, session.nodes + len(content.tokens), content.nodes

    def leaves(self) -> list[Leave]:
        """Return the Leave of every open session."""
        return [Leave(tag, session.request, session.epoch) for tag, session in self.open.items()]

    def _opens(
        self, message: DraftRequest, content: Content, session: SessionState | None, now_s: float
    ) -> tuple[Judgement, list[Leave]]:
        if (message.request, message.epoch) <= self.newest.get(message.tag, (-1, 0)):
            return "repeated", []
        if now_s - self.opened_s.get(message.tag, -math.inf) < self.bounds.again_s:
            return "repeated", []
        if request_refused(message, content, None, self.bounds, self.priority):
            return "inadmissible", []
        self.open[message.tag] = SessionState(message.request, message.epoch, message.base)
        self.newest[message.tag] = message.request, message.epoch
        self.opened_s[message.tag] = now_s
        return "new", [] if session is None else [Leave(message.tag, session.request, session.epoch)]

    def _follows(
        self, message: DraftRequest, content: Content, session: SessionState | None
    ) -> tuple[Judgement, list[Leave]]:
        if session is None or session.request != message.request or message.epoch <= session.epoch:
            return "repeated", []
        if request_refused(message, content, session, self.bounds, self.priority):
            return "inadmissible", []
        if session.waits and self.bounds.in_turn:
            return "inadmissible", []
        self.open[message.tag] = SessionState(message.request, message.epoch, message.base)
        return "new", []
