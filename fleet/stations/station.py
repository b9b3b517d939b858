"""A station: one server of the network as a state machine without clock, thread, socket or random number.

`handle` takes an event and returns instructions; `plan` returns the device's next step. A SimPy process and an engine
worker drive the same stations, so both worlds decide alike, and a log of events fed to a fresh station gives the
logged plans again (`fleet/records/replay.py`). The kinds are in `drafter.py`, `verifier.py`, `aligned.py` and
`router.py`.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from specfleet.fleet.policies.group import AllWaiting, DraftGroup, One
from specfleet.fleet.policies.order import Order, Work
from specfleet.fleet.stations.buffer import Buffer
from specfleet.fleet.stations.messages import Ignored, Instruction, Join, StationEvent, StepDone
from specfleet.fleet.stations.session import Session
from specfleet.fleet.times.step import Member, Step, StepKind


class Start(msgspec.Struct, frozen=True, gc=False):
    """Plan: run this step now and report `StepDone`."""

    step: Step


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Plan: do nothing until the next event, or until `until_s` if set."""

    until_s: float | None = None


Plan = Start | Wait
WAIT = Wait()
ONE = One()


class Station:
    """Base of all stations: a buffer of work, one running step, and a program for the served group.

    A served group keeps the device for a short program of steps (warm up, prefill, draft), because they prepare the
    caches of this group only. `sessions` has this station's state of every stream by tag.
    """

    def __init__(self, name: str, order: Order, group: DraftGroup = ONE) -> None:
        self.name = name
        self.order = order
        self.group = group
        self.sessions: dict[int, Session] = {}
        self.latest: dict[int, tuple[int, int]] = {}  # newest (request, epoch) in which each tag opened
        self.waiting = Buffer()
        self.program: deque[tuple[StepKind, tuple[int, ...]]] = deque()  # future steps, and their tags
        self.running: Step | None = None
        self.steps_started = 0
        self.free_since_s = 0.0
        self.idle_gap_s = 0.0
        self.warm_tokens = 0
        self.carried = 0  # finished rows of a batch that ends as a whole
        self.now_s = 0.0  # time of the last call of `plan`
        self.alone = False  # whether its sessions decode without a drafter
        self.first_epoch = 0  # of its sessions
        self._handlers: dict[type, Callable[[Any, float], list[Instruction]]] = {StepDone: self._done}

    def alarm_s(self) -> float:
        """Time of the next timeout, unless an event comes before; infinite without one."""
        return math.inf

    def due(self, now_s: float) -> list[StationEvent]:
        """Return the timeout events at `now_s`; the caller passes them to `handle`."""
        return []

    def handle(self, event: StationEvent, now_s: float) -> list[Instruction]:
        """Process an event at `now_s`; return the instructions that follow."""
        return self._handlers[type(event)](event, now_s)

    @property
    def ready(self) -> bool:
        """Return whether `plan` would start a step now: for drivers that must first obtain the device."""
        return self.running is None and bool(self.program or self.waiting)

    def plan(self, now_s: float) -> Plan:
        """Return what the device should do now; a returned step counts as started."""
        if self.running is not None:
            return WAIT
        if not self.program:
            self.now_s = now_s
            self.idle_gap_s = now_s - self.free_since_s
            self.warm_tokens = 0
            if not self._plan_program():
                return self._pause()
        kind, tags = self.program.popleft()
        members = tuple([self._bind(kind, self.sessions[tag]) for tag in tags])
        self.steps_started += 1
        self.running = Step(self.steps_started, kind, members, self.idle_gap_s, self.warm_tokens, self.carried)
        return Start(self.running)

    def _pause(self) -> Wait:
        """Return what to wait for if nothing can start."""
        return WAIT

    def _next_group(self) -> list[int]:
        """Return the indices into `waiting` of the next group."""
        if isinstance(self.group, AllWaiting):
            return self.group.pick(self.waiting)
        return [self.order.pick(self.waiting)] if self.waiting else []

    def _plan_program(self) -> bool:
        """Take the next group out of the buffer and begin its program; False if there is none."""
        group = self._next_group()
        if not group:
            return False
        self.program.extend(self._program(self.waiting.take(group)))
        return True

    def _program(self, works: list[Work]) -> list[tuple[StepKind, tuple[int, ...]]]:
        """Return the steps, in order, that serve `works`, which are of one kind."""
        return [(works[0].kind, tuple([work.tag for work in works]))]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        """Bind a step of `kind` to the present state of `session`."""
        raise AssertionError(f"{self.name} cannot {kind} session {session.tag}")

    def _done(self, event: StepDone, now_s: float) -> list[Instruction]:
        """Free the device, and process the outcomes of the step; the report of another step is ignored."""
        step = self.running
        if step is None or event.step != step.number:
            return [Ignored(event, f"step {event.step} is not running")]
        self.running = None
        self.free_since_s = now_s
        return self._ended(step, event, now_s)

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        """Process the outcomes of a step that has ended; return the instructions that follow."""
        raise NotImplementedError

    def _is_new(self, tag: int, request: int, epoch: int = 0) -> bool:
        """Note a request that opens, perhaps again in a later epoch; False if it, or a later one, opened before."""
        if (request, epoch) <= self.latest.get(tag, (-1, 0)):
            return False
        self.latest[tag] = request, epoch
        return True

    def _join(self, event: Join, now_s: float) -> list[Instruction]:
        """Open a request's session, and queue its prefill; a repeated one is ignored. ValueError if one is open."""
        tag, before = event.tag, self.sessions.get(event.tag)
        if before is not None and event.request > before.request:
            raise ValueError(
                f"{self.name}: request {event.request} opens tag {tag}, whose request {before.request} is open"
            )
        if not self._is_new(event.tag, event.request):
            return [Ignored(event, f"request {event.request} of tag {event.tag} was opened before")]
        goal = event.prompt_tokens + event.new_tokens
        base, epoch = event.prompt_tokens, self.first_epoch
        session = Session(tag, event.request, epoch, base, goal, priority=event.priority, alone=self.alone)
        self.sessions[tag] = session
        self.waiting.append(Work("prefill", event.tag, event.priority))
        return []

    def _forget(self, tag: int) -> None:
        """Remove a session and all work for it; a running step ends, and its outcome is ignored."""
        del self.sessions[tag]
        self.waiting.drop(tag)
        if self.program:
            left = [(kind, tuple(other for other in tags if other != tag)) for kind, tags in self.program]
            self.program = deque((kind, tags) for kind, tags in left if tags)
