"""A router as a state machine: it sends each round of a session to one of several drafters."""

from collections.abc import Sequence

import msgspec

from specfleet.fleet.policies.blocks import CachedBlocks
from specfleet.fleet.policies.order import Fifo, Work
from specfleet.fleet.policies.route import LongestPrefix, Routing
from specfleet.fleet.stations.messages import DraftRequest, Ignored, Instruction, Leave, Routed, StepDone, View
from specfleet.fleet.stations.session import Session
from specfleet.fleet.stations.station import Station
from specfleet.fleet.times.step import Member, Step, StepKind

_LEFT = 1 << 62  # epoch of a session that left: above every real one, so that late messages are stale


class RouterStation(Station):
    """Routes draft requests by views of the drafters; its steps take no time, and are recorded and replayed as others.

    A session that moves leaves its old drafter and opens at the new one, which then needs its prefix in the cache.
    """

    def __init__(self, name: str, drafters: int, route: Routing, caches: Sequence[CachedBlocks] = ()) -> None:
        super().__init__(name, Fifo())
        self.route = route
        self.queues = [0] * drafters  # sessions at each drafter, by its newest view and those sent since
        self.heard = [-1] * drafters  # number of the newest view of each drafter
        self.homes: dict[int, int] = {}  # drafter of a session, by tag
        self.waiting_requests: dict[int, DraftRequest] = {}  # requests that wait for their route, by tag
        self.turn = 0
        self.caches = caches  # texts that were sent to each drafter lately
        self._handlers |= {DraftRequest: self._request, Leave: self._leave, View: self._view}

    def _request(self, event: DraftRequest, now_s: float) -> list[Instruction]:
        known = self.sessions.get(event.tag)
        if known is not None and (known.request, known.epoch) >= (event.request, event.epoch):
            return [Ignored(event, f"epoch {event.epoch} of tag {event.tag} was routed before")]
        if event.opening:
            if known is None or known.request != event.request:
                self.homes.pop(event.tag, None)
        elif known is None or known.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        self.sessions[event.tag] = Session(event.tag, event.request, event.epoch, event.base, priority=event.priority)
        self.waiting_requests[event.tag] = event
        self.waiting.drop(event.tag)
        self.waiting.append(Work("route", event.tag, event.priority))
        return []

    def _leave(self, event: Leave, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request or session.epoch == _LEFT:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        known = event.tag in self.homes or event.tag in self.waiting_requests
        if event.epoch and (event.epoch < session.epoch or not known):
            return [Ignored(event, f"epoch {event.epoch} of tag {event.tag} is over")]
        self.waiting.drop(event.tag)
        self.waiting_requests.pop(event.tag, None)
        self.sessions[event.tag] = msgspec.structs.replace(session, epoch=event.epoch or _LEFT)
        home = self.homes.pop(event.tag, None)
        return [] if home is None else [Routed(event.tag, event.request, home, event)]

    def _view(self, event: View, now_s: float) -> list[Instruction]:
        if event.request <= self.heard[event.tag]:
            return [Ignored(event, f"view {event.request} of drafter {event.tag} is out of date")]
        self.heard[event.tag] = event.request
        self.queues[event.tag] = event.waiting
        return []

    def _bind(self, kind: StepKind, session: Session) -> Member:
        home, route = self.homes.get(session.tag), self.route
        if isinstance(route, LongestPrefix):
            shares = [self._tokens_in(cache, session) / session.base for cache in self.caches]
            drafter = route.choose(home, self.queues, self.turn, shares)
        else:
            drafter = route.choose(home, self.queues, self.turn)
        return Member(session.tag, session.request, session.epoch, session.base, drafter)

    def _tokens_in(self, cache: CachedBlocks, session: Session, keeps: bool = False) -> int:
        """Return how many tokens of a session's text a cache has; `keeps`: and let it have all of them."""
        tag, base = session.tag, session.base
        cache.open(tag, session.request)
        tokens = cache.hold_text(tag, base, base) if keeps else len(cache.find(tag, base)) * cache.block_size
        cache.close(tag)
        return tokens

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        member = step.members[0]
        request = self.waiting_requests.get(member.tag)
        if request is None or (request.request, request.epoch) != (member.request, member.epoch):
            return []  # it left or advanced at the same instant
        del self.waiting_requests[member.tag]
        drafter, home = member.tokens, self.homes.get(member.tag)
        self.turn += 1
        self.homes[member.tag] = drafter
        self.queues[drafter] += 1
        if self.caches:
            self._tokens_in(self.caches[drafter], self.sessions[member.tag], keeps=True)
        routed: list[Instruction] = []
        if home is not None and home != drafter:
            routed.append(Routed(member.tag, member.request, home, Leave(member.tag, member.request, member.epoch)))
        if home != drafter:
            request = msgspec.structs.replace(request, opening=True)
        return [*routed, Routed(member.tag, member.request, drafter, request)]
