"""A station: one server of the network as a state machine without clock, thread, socket or random number.

Events go in through `handle` and answer with instructions; `plan` says what the device should do now. A SimPy
process and an engine worker drive the same stations, so both worlds decide alike, and a log of events fed to a
fresh station must give the logged plans again (see `replay.py`).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from specfleet.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Outcome,
    Refusal,
    Released,
    StationEvent,
    StepDone,
)
from specfleet.policies.admit import Admission, Everyone
from specfleet.policies.allocate import Allocation
from specfleet.policies.order import Fifo, Order
from specfleet.policies.warm_up import NoWarmUp, WarmUp
from specfleet.session import Session, advance, extend, settle

StepKind = Literal["prefill", "draft", "verify", "decode", "warm_up"]


class Work(msgspec.Struct, frozen=True, gc=False):
    """One thing to do for one session, waiting in a station's buffer."""

    kind: StepKind
    tag: int
    priority: int = 0


class Member(msgspec.Struct, frozen=True, gc=False):
    """One session's share in a step, bound when the step starts: `tokens` new ones after `base` known ones."""

    tag: int
    request: int
    epoch: int
    base: int
    tokens: int


class Step(msgspec.Struct, frozen=True, gc=False):
    """What the device does without interruption for its members.

    `idle_gap_s`: how long the station had nothing to do before the group that this step belongs to;
    `warm_tokens`: warm-up tokens that ran since. Together they set how cold the device is (StarSD, section 5.3).
    """

    number: int
    kind: StepKind
    members: tuple[Member, ...]
    idle_gap_s: float = 0.0
    warm_tokens: int = 0


class Start(msgspec.Struct, frozen=True, gc=False):
    """Plan: run this step now and report `StepDone`."""

    step: Step


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Plan: do nothing until the next event, or until `until_s` where that is set."""

    until_s: float | None = None


Plan = Start | Wait
WAIT = Wait()


class Station:
    """What drafter and verifier have in common: a buffer of work, one running step, and a program for its group.

    A served group keeps the device for a short program of steps (warm up, prefill, draft), because what prepares
    its caches is useless to others. `sessions` holds this station's view of every stream by tag.
    """

    def __init__(self, name: str, order: Order) -> None:
        self.name = name
        self.order = order
        self.sessions: dict[int, Session] = {}
        self.latest: dict[int, int] = {}  # newest request that each tag has brought; numbers only grow
        self.waiting: deque[Work] = deque()
        self.program: deque[StepKind] = deque()
        self.served: tuple[int, ...] = ()  # tags of the group that the program is for
        self.running: Step | None = None
        self.steps_started = 0
        self.free_since_s = 0.0
        self.idle_gap_s = 0.0
        self.warm_tokens = 0
        self._handlers: dict[type, Callable[[Any, float], list[Instruction]]] = {}

    def handle(self, event: StationEvent, now_s: float) -> list[Instruction]:
        """Take an event that happened at `now_s`; return what follows from it."""
        return self._handlers[type(event)](event, now_s)

    @property
    def ready(self) -> bool:
        """Whether `plan` would start a step now: for drivers that must first obtain the device."""
        return self.running is None and bool(self.program or self.waiting)

    def plan(self, now_s: float) -> Plan:
        """Say what the device should do now, and regard it as started."""
        if self.running is not None or not (self.program or self.waiting):
            return WAIT
        if not self.program:
            self._serve_next(now_s)
        kind = self.program.popleft()
        members = tuple([self._bind(kind, self.sessions[tag]) for tag in self.served])
        self.steps_started += 1
        self.running = Step(self.steps_started, kind, members, self.idle_gap_s, self.warm_tokens)
        return Start(self.running)

    def _serve_next(self, now_s: float) -> None:
        index = self.order.pick(self.waiting)
        work = self.waiting[index]
        del self.waiting[index]
        self.idle_gap_s = now_s - self.free_since_s
        self.warm_tokens = 0
        self.served = (work.tag,)
        self.program.extend(self._program(work))

    def _program(self, work: Work) -> list[StepKind]:
        """List the steps that serving `work` takes, in order."""
        return [work.kind]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        """Fix what a step of `kind` does for `session`, from the session as it is now."""
        raise AssertionError(f"{self.name} cannot {kind} session {session.tag}")

    def _finish(self, done: StepDone, now_s: float) -> Step | None:
        """Free the device; None if `done` is not the running step's report."""
        step = self.running
        if step is None or done.step != step.number:
            return None
        self.running = None
        self.free_since_s = now_s
        return step

    def _is_new(self, tag: int, request: int) -> bool:
        """Note a request that opens; False if it, or a later one of its tag, has opened before."""
        if request <= self.latest.get(tag, -1):
            return False
        self.latest[tag] = request
        return True

    def _forget(self, tag: int) -> None:
        """Drop a session and all work for it; a step that runs for it ends, and its outcome is ignored."""
        del self.sessions[tag]
        self.waiting = deque(work for work in self.waiting if work.tag != tag)
        if tag in self.served:
            self.served = tuple(served for served in self.served if served != tag)
            if not self.served:
                self.program.clear()


class DrafterStation(Station):
    """M_q: drafts for many targets from one request buffer (StarSD, algorithm 1).

    A session's first round begins with the prefill of its prompt, which holds up everyone behind it.
    """

    def __init__(
        self,
        name: str,
        allocation: Allocation,
        order: Order = Fifo(),
        admission: Admission = Everyone(),
        warm_up: WarmUp = NoWarmUp(),
    ) -> None:
        super().__init__(name, order)
        self.allocation = allocation
        self.admission = admission
        self.warm_up = warm_up
        self.cold: set[int] = set()  # tags whose prompt is not in this station's cache yet
        self._handlers = {DraftRequest: self._request, Leave: self._leave, StepDone: self._done}

    def _request(self, event: DraftRequest, now_s: float) -> list[Instruction]:  # noqa: ARG002
        session = self.sessions.get(event.tag)
        if event.opening:
            if session is not None:
                return [Ignored(event, f"request {session.request} of tag {event.tag} is still open")]
            if not self._is_new(event.tag, event.request):
                return [Ignored(event, f"request {event.request} of tag {event.tag} was opened before")]
            reason = self.admission.refusal(len(self.sessions))
            if reason is not None:
                return [Refusal(event.tag, event.request, reason)]
            self.sessions[event.tag] = Session(
                event.tag, event.request, event.epoch, event.base, priority=event.priority
            )
            self.cold.add(event.tag)
        else:
            if session is None or session.request != event.request:
                return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
            moved = advance(session, event.epoch, event.base)
            if isinstance(moved, str):
                return [Ignored(event, moved)]
            self.sessions[event.tag] = moved
        self.waiting.append(Work("draft", event.tag, event.priority))
        return []

    def _leave(self, event: Leave, now_s: float) -> list[Instruction]:  # noqa: ARG002
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        self._forget(event.tag)
        self.cold.discard(event.tag)
        return [Released(event.tag, event.request)]

    def _done(self, event: StepDone, now_s: float) -> list[Instruction]:
        step = self._finish(event, now_s)
        if step is None:
            return [Ignored(event, f"step {event.step} is not running")]
        if step.kind == "warm_up":
            self.warm_tokens += step.members[0].tokens
            return []
        drafts: list[Instruction] = []
        for member in step.members:
            session = self.sessions.get(member.tag)
            if session is None or (session.request, session.epoch) != (member.request, member.epoch):
                continue  # it left, or moved on, while the step ran
            if step.kind == "prefill":
                self.cold.discard(member.tag)
                continue
            self.sessions[member.tag] = msgspec.structs.replace(session, tail=member.tokens)
            drafts.append(Draft(member.tag, member.request, member.epoch, member.base, member.tokens))
        return drafts

    def _program(self, work: Work) -> list[StepKind]:
        program: list[StepKind] = []
        if self.warm_up.tokens_after(self.idle_gap_s):
            program.append("warm_up")
        if work.tag in self.cold:
            program.append("prefill")
        program.append("draft")
        return program

    def _bind(self, kind: StepKind, session: Session) -> Member:
        if kind == "draft":
            tokens = self.allocation.speculation_length()
        elif kind == "prefill":
            tokens = session.base - 1  # the last committed token is the first input of the draft step
        else:
            tokens = self.warm_up.tokens_after(self.idle_gap_s)
        base = 0 if kind == "prefill" else session.base
        return Member(session.tag, session.request, session.epoch, base, tokens)


class VerifierStation(Station):
    """M_p: prefills prompts, verifies drafts and owns the truth about its sessions.

    Without a drafter (`speculates` is False), or when refused by one, it decodes one token a step: the standalone
    baseline.
    """

    def __init__(self, name: str, speculates: bool = True, order: Order = Fifo()) -> None:
        super().__init__(name, order)
        self.speculates = speculates
        self._handlers = {
            Join: self._join,
            Draft: self._draft,
            Refusal: self._refused,
            StepDone: self._done,
        }

    def _join(self, event: Join, now_s: float) -> list[Instruction]:  # noqa: ARG002
        if event.tag in self.sessions:
            return [Ignored(event, f"tag {event.tag} is still busy with its last request")]
        if not self._is_new(event.tag, event.request):
            return [Ignored(event, f"request {event.request} of tag {event.tag} was opened before")]
        self.sessions[event.tag] = Session(
            event.tag,
            event.request,
            epoch=0,
            base=event.prompt_tokens,
            goal=event.prompt_tokens + event.new_tokens,
            priority=event.priority,
            alone=not self.speculates,
        )
        self.waiting.append(Work("prefill", event.tag, event.priority))
        return []

    def _draft(self, event: Draft, now_s: float) -> list[Instruction]:  # noqa: ARG002
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        if session.alone:
            return [Ignored(event, f"request {event.request} of tag {event.tag} decodes alone")]
        extended = extend(session, event.epoch, event.base, event.tokens)
        if isinstance(extended, str):
            return [Ignored(event, extended)]
        self.sessions[event.tag] = extended
        self.waiting.append(Work("verify", event.tag, session.priority))
        return []

    def _refused(self, event: Refusal, now_s: float) -> list[Instruction]:  # noqa: ARG002
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request or session.alone:
            return [Ignored(event, f"request {event.request} of tag {event.tag} waits for no drafter")]
        self.sessions[event.tag] = msgspec.structs.replace(session, alone=True)
        self.waiting.append(Work("decode", event.tag, session.priority))
        return []

    def _done(self, event: StepDone, now_s: float) -> list[Instruction]:
        step = self._finish(event, now_s)
        if step is None:
            return [Ignored(event, f"step {event.step} is not running")]
        followed: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            followed += self._commit(step.kind, member, outcome)
        return followed

    def _commit(self, kind: StepKind, member: Member, outcome: Outcome) -> list[Instruction]:
        """Book what a step gave one session, and send the session on its way."""
        verified = member.tokens if kind == "verify" else 0
        session = settle(self.sessions[member.tag], verified, outcome.accepted)
        self.sessions[member.tag] = session
        if session.finished or outcome.stopped:
            self._forget(session.tag)
            finished: list[Instruction] = [
                Released(session.tag, session.request),
                Finished(session.tag, session.request),
            ]
            # The drafter knows this request only if a draft was asked for: not after a prefill, not when alone.
            known = kind == "verify"
            return [Leave(session.tag, session.request), *finished] if known else finished
        if session.alone:
            self.waiting.append(Work("decode", session.tag, session.priority))
            return []
        opening = kind == "prefill"
        return [DraftRequest(session.tag, session.request, session.epoch, session.base, opening, session.priority)]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tokens = {"prefill": session.base, "verify": session.tail, "decode": 1}[kind]
        base = 0 if kind == "prefill" else session.base
        return Member(session.tag, session.request, session.epoch, base, tokens)
