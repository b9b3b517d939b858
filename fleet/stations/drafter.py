"""The drafter's side of the network as a state machine: one request buffer for many targets."""

import math
from collections.abc import Mapping

import msgspec

from specfleet.fleet.policies.admit import refusal_of
from specfleet.fleet.policies.blocks import CachedBlocks
from specfleet.fleet.policies.order import Deadline, Order, Weighted, Work, rate_limits
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.shapes import reach
from specfleet.fleet.scenario.resolved import ResolvedDrafters
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Ignored,
    Instruction,
    Leave,
    Refusal,
    Released,
    Restarted,
    StationEvent,
    StepDone,
    View,
)
from specfleet.fleet.stations.session import Session, advance, era_of
from specfleet.fleet.stations.station import WAIT, Station, Wait
from specfleet.fleet.times.step import Member, Step, StepKind


class Discipline:
    """Stamps requests on arrival. Stream t belongs to target t mod `targets`, or is its own target if that is 0."""

    def __init__(self, order: Order, targets: int = 0) -> None:
        self.weights = order if isinstance(order, Weighted) else None
        self.goals = order if isinstance(order, Deadline) else None
        self.limits_per_s = rate_limits(order)
        self.targets = targets
        self.limited = bool(self.limits_per_s)
        self.plain = self.weights is None and self.goals is None and not self.limited  # nothing to stamp
        self.allowed_s: dict[int, float] = {}  # earliest start of a limited target's next round
        self.ends: dict[int, float] = {}  # virtual time at which a target's last round ends
        self.now = 0.0  # virtual time: the start of the last served request

    def target_of(self, tag: int) -> int:
        """Return the number of a stream's target."""
        return tag % self.targets if self.targets else tag

    def virtual_start(self, target: int) -> float:
        """Return the start of the target's next round in virtual time; see `Weighted`."""
        if self.weights is None:
            return 0.0
        start = max(self.ends.get(target, self.now), self.now - self.weights.credit)
        self.ends[target] = start + 1 / self.weights.weight(target)
        return start

    def not_before_s(self, target: int, now_s: float) -> float:
        """Return the earliest start of the target's next round, and count the round."""
        limit = self.limits_per_s[min(target, len(self.limits_per_s) - 1)] if self.limited else 0.0
        if limit <= 0:
            return 0.0
        allowed_s = max(now_s, self.allowed_s.get(target, 0.0))
        self.allowed_s[target] = allowed_s + 1 / limit
        return allowed_s

    def due_s(self, target: int, now_s: float) -> float:
        """Return the deadline of a request that arrives now; see `Deadline`."""
        return 0.0 if self.goals is None else now_s + self.goals.goal_s(target)

    def served(self, virtual_start: float) -> None:
        """Advance virtual time to the served request."""
        self.now = max(self.now, virtual_start)


class DrafterStation(Station):
    """M_q: drafts for many targets from one request buffer (StarSD, algorithm 1).

    A session's first round begins with the prefill of its prompt, which delays all sessions behind it. A drafter that
    drafts ahead (AMUSD) drafts one token in a step, and continues during verification up to the granted length. Behind
    a router it reports its work after every change. `drafter`: its number. `lengths`: final tokens of each request, for
    orders of installed packages, which see a session's progress.

    A session may open again, in a later epoch or request, while it is still open here; its old state is then lost.
    """

    def __init__(
        self, name: str, drafters: ResolvedDrafters, drafter: int = 0, lengths: Mapping[int, int] | None = None,
        cache: CachedBlocks | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, drafters.order, drafters.group)
        self.admission = drafters.admit
        self.warm_up = drafters.warm_up
        self.ahead = isinstance(drafters.overlap, Ahead)
        self.depth = drafters.depth
        self.positions = drafters.positions
        self.discipline = Discipline(drafters.order, drafters.targets)
        self.cold: dict[int, int] = {}  # of sessions whose prefix is not in the cache: its tokens that are, by tag
        self.cache = cache
        self.number = drafter if drafters.route is not None else -1  # a drafter behind a router has a number
        self.views = 0
        self.lengths = lengths
        self.tells_queue = False  # whether drafts say how many requests wait here
        self.openings: dict[int, tuple[int, int]] = {}  # base and epoch with which each session opened, by tag
        self.lease_s = drafters.lease_s
        self.heard_s: dict[int, float] = {}  # since when a session's target has to answer, by tag
        self._handlers |= {DraftRequest: self._request, Leave: self._leave, Restarted: self._restarted}

    def alarm_s(self) -> float:
        """Return when the next lease ends."""
        return min(self.heard_s.values(), default=math.inf) + self.lease_s

    def due(self, now_s: float) -> list[StationEvent]:
        """Return the leaves of the sessions whose lease has ended by `now_s`."""
        over = [tag for tag, heard_s in self.heard_s.items() if heard_s + self.lease_s <= now_s]
        return [Leave(tag, self.sessions[tag].request, self.sessions[tag].epoch) for tag in over]

    def _restarted(self, event: Restarted, now_s: float) -> list[Instruction]:
        """Report an empty queue to the router, in views newer than all before."""
        self.views = event.incarnation << 32
        return self._report()

    def _request(self, event: DraftRequest, now_s: float) -> list[Instruction]:
        followed = self._accept(event, now_s)
        if followed and isinstance(followed[0], Ignored):
            return followed
        # The router has counted the request as work, so every outcome is reported, a refusal too.
        return followed + self._report()

    def _accept(self, event: DraftRequest, now_s: float) -> list[Instruction]:
        """Accept a request; return the direct answer: a refusal, or the empty draft of an empty grant."""
        session = self.sessions.get(event.tag)
        if event.opening:
            refused = self._open(event, session)
            if refused is not None:
                return [refused]
        else:
            if session is None or session.request != event.request:
                return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
            moved = advance(session, event.epoch, event.base, event.tokens)
            if isinstance(moved, str):
                return [Ignored(event, moved)]
            self.sessions[event.tag] = moved
        if event.tokens == 0:  # nothing is granted: the round has only the target's own token
            self._await(event.tag, now_s)
            return [Draft(event.tag, event.request, event.epoch, event.base, 0, len(self.waiting) * self.tells_queue)]
        self._ask(event.tag, event.priority, now_s)
        return []

    def _report(self) -> list[Instruction]:
        if self.number < 0:
            return []
        self.views += 1
        running = self.running is not None or bool(self.program)
        return [View(self.number, self.views, len(self.waiting) + running)]

    def _open(self, event: DraftRequest, session: Session | None) -> Instruction | None:
        """Open a session; return the refusal if that is impossible."""
        if not self._is_new(event.tag, event.request, event.epoch):
            return Ignored(event, f"request {event.request} of tag {event.tag} was opened before")
        if session is not None:
            self._end(event.tag)
        reason = refusal_of(self.admission, len(self.sessions), self.discipline.target_of(event.tag))
        if reason is not None:
            return Refusal(event.tag, event.request, reason, era_of(event.epoch))
        self.sessions[event.tag] = Session(
            event.tag, event.request, event.epoch, event.base, priority=event.priority, asked=event.tokens
        )
        self.cold[event.tag] = 0
        if self.cache:
            self.cache.open(event.tag, event.request)
        self.openings[event.tag] = event.base, event.epoch
        return None

    def _await(self, tag: int, now_s: float) -> None:
        """Start the lease of a session's target."""
        if self.lease_s:
            self.heard_s[tag] = now_s

    def _end(self, tag: int) -> None:
        """Remove a session and its cache; a prefix cache keeps what its blocks hold."""
        self._forget(tag)
        if self.cache:
            self.cache.close(tag)
        self.cold.pop(tag, None)
        self.heard_s.pop(tag, None)
        self.openings.pop(tag, None)

    def _ask(self, tag: int, priority: int, now_s: float) -> None:
        """Queue a draft; when drafting ahead, one may be queued already, and starts from the new base."""
        self.heard_s.pop(tag, None)
        if self.ahead and self._is_to_draft(tag):
            return
        discipline, work = self.discipline, Work("draft", tag, priority)
        if self.lengths is not None:
            work = self._with_progress(work, self.lengths)
        if not discipline.plain:
            target = discipline.target_of(tag)
            start, allowed_s = discipline.virtual_start(target), discipline.not_before_s(target, now_s)
            due_s = discipline.due_s(target, now_s)
            work = msgspec.structs.replace(work, virtual_start=start, not_before_s=allowed_s, due_s=due_s)
        self.waiting.append(work)

    def _with_progress(self, work: Work, lengths: Mapping[int, int]) -> Work:
        """Return the work with what its session has committed, still needs, and accepted since it opened."""
        session, (opened, epoch) = self.sessions[work.tag], self.openings[work.tag]
        rounds = session.epoch - epoch
        return msgspec.structs.replace(
            work,
            base=session.base,
            left=max(lengths.get(session.request, session.base) - session.base, 0),
            accepted_per_round=(session.base - opened) / rounds - 1 if rounds else math.nan,
        )

    def _is_to_draft(self, tag: int) -> bool:
        """Return whether a draft for a session waits, or follows the running prefill."""
        follows = any(kind == "draft" and tag in tags for kind, tags in self.program)
        return follows or self.waiting.holds(tag)

    def _next_group(self) -> list[int]:
        if not self.discipline.limited:
            return super()._next_group()
        allowed = [index for index, work in enumerate(self.waiting) if work.not_before_s <= self.now_s]
        if not allowed:
            return []
        return [allowed[self.order.pick([self.waiting[index] for index in allowed])]]

    def _pause(self) -> Wait:
        return (
            Wait(min(work.not_before_s for work in self.waiting)) if self.discipline.limited and self.waiting else WAIT
        )

    def _leave(self, event: Leave, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        if event.epoch and event.epoch < session.epoch:
            return [Ignored(event, f"request {event.request} of tag {event.tag} came back in epoch {session.epoch}")]
        self._end(event.tag)
        return [Released(event.tag, event.request), *self._report()]

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        if step.kind == "warm_up":
            self.warm_tokens += step.members[0].tokens
            return []
        if step.kind == "prefill":
            for member in step.members:
                if (member.request, member.epoch) >= self.latest[member.tag]:  # else it has opened again meanwhile
                    self.cold.pop(member.tag, None)
        drafts = self._drafted(step, event, now_s) if step.kind == "draft" else []
        return drafts if self.program else drafts + self._report()

    def _drafted(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        """Send a step's drafts, except for sessions that left or advanced while it ran."""
        drafts: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            session = self.sessions.get(member.tag)
            if session is None or (session.request, session.epoch) != (member.request, member.epoch):
                continue
            tokens = member.tokens if outcome.drafted < 0 else outcome.drafted  # prompt lookup may find fewer
            tail = session.tail + tokens
            self.sessions[member.tag] = msgspec.structs.replace(session, tail=tail)
            queued = len(self.waiting) * self.tells_queue
            drafts.append(Draft(member.tag, member.request, member.epoch, member.base, tokens, queued))
            self._await(member.tag, now_s)
            if self.ahead and (session.asked < 0 or tail < session.asked):
                self._ask(member.tag, session.priority, now_s)
        return drafts

    def _find(self, tags: tuple[int, ...], cache: CachedBlocks) -> None:
        """Give sessions the blocks of their next drafts; one with its whole prefix in the cache is not cold."""
        for tag in tags:
            base, asked = self.sessions[tag].base, self.sessions[tag].asked
            found = cache.hold_text(tag, base, base + max(asked, self.depth))
            if tag in self.cold:
                self.cold[tag] = found
                if found == base - 1:
                    del self.cold[tag]

    def _program(self, works: list[Work]) -> list[tuple[StepKind, tuple[int, ...]]]:
        if not self.discipline.plain:
            self.discipline.served(works[0].virtual_start)
        tags = tuple([work.tag for work in works])
        program: list[tuple[StepKind, tuple[int, ...]]] = []
        if self.warm_up.tokens_after(self.idle_gap_s):
            program.append(("warm_up", tags[:1]))
        if self.cache:
            self._find(tags, self.cache)
        missing = tuple([tag for tag in tags if tag in self.cold]) if self.cold else ()
        if missing:
            program.append(("prefill", missing))
        program.append(("draft", tags))
        return program

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tag, request, epoch = session.tag, session.request, session.epoch
        if kind == "prefill":
            # The last committed token is the first input of the draft step.
            return Member(tag, request, epoch, self.cold[tag], session.base - 1 - self.cold[tag])
        if kind == "warm_up":
            return Member(tag, request, epoch, session.base, self.warm_up.tokens_after(self.idle_gap_s))
        if self.ahead:
            return Member(tag, request, epoch, session.base + session.tail, 1)
        tokens = reach(session.asked if session.asked > 0 else self.depth, session.base, self.positions)
        return Member(tag, request, epoch, session.base, tokens, session.behind)
