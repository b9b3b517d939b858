"""A worker drives one station with real time: an inbox of events, a device, an executor. Without torch.

It owns station and executor, and nothing of the network: what arrives comes through its inbox, what it posts is taken
from it at once. So input never waits for inference, and inference never for the network.
"""

import contextlib
import heapq
import math
import queue
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol, runtime_checkable

import msgspec

from engine.net.actions import Arrival
from engine.net.clock import MAX_MARGIN_S, Waiter, now_s
from engine.net.content import NOTHING, Content
from engine.net.handshake import Ping
from engine.node.device_lock import DeviceLock, no_lock
from fleet.policies.outcome import Outcome
from fleet.records.recorder import RecordedStation
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Ignored,
    Instruction,
    Message,
    Refusal,
    Released,
    Routed,
    StationEvent,
    StepDone,
)
from fleet.stations.station import Start, Wait
from fleet.times.step import Step

STILL_S = 0.05  # a wait that ends so much too late: this process stood still
READ_S = 0.05  # after which what came meanwhile has been read
TURNED_DOWN, WITH_CONTENT = frozenset({Ignored, Refusal}), (Draft, DraftRequest)


@runtime_checkable
class Following(Protocol):
    """An executor whose outcomes depend on what arrived while the step ran."""

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Return the outcomes of a step that has just ended, once everything that arrived before its end is known."""


class Executor(Protocol):
    """Runs the steps of one station on its models, and holds what its messages carry."""

    def receive(self, event: StationEvent, content: Content) -> None:
        """Take the content of an event that the station accepted."""

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Run a step; return one outcome a member."""

    def content_of(self, message: Message) -> Content:
        """Return the content that belongs to a message of the station."""

    def release(self, tag: int) -> None:
        """Forget a finished request of `tag`."""


class Stop(msgspec.Struct, frozen=True):
    """Nothing more will come."""


Item = Arrival | Stop
Outcomes = tuple[Outcome, ...]
Timed = Callable[[Callable[[], Outcomes]], tuple[Outcomes, float]]
"""Does a step's work; returns its outcomes and its time in seconds on the device's own clock."""


def by_the_clock(work: Callable[[], Outcomes]) -> tuple[Outcomes, float]:
    """Do a step's work; return its outcomes and its time in seconds."""
    started_s = time.perf_counter()
    outcomes = work()
    return outcomes, time.perf_counter() - started_s


class Worker:
    """One station, its executor and its device, in the thread that calls `run`.

    `post(instruction, content)` carries out what the station asks for. `zero_s` is the run's time zero on this host.
    """

    def __init__(
        self,
        station: RecordedStation,
        executor: Executor,
        post: Callable[[Any, Content], None],
        timed: Timed = by_the_clock,
        lock: DeviceLock = no_lock,
        zero_s: float = 0.0,
    ) -> None:
        self.recorded = station
        self.station = station.station
        self.executor = executor
        self.post = post
        self.timed = timed
        self.lock = lock
        self.zero_s = zero_s
        self.resolved = executor.resolved if isinstance(executor, Following) else _as_they_are
        self.later: list[tuple[float, int, Arrival]] = []  # a heap: what is to be handed over at a time
        self.numbers = count()
        self.before: Callable[[Step], None] = lambda _step: None  # called right before a step's work
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.waiter = Waiter()
        self.event_s = 0.0  # of the last event

    def run(self) -> None:
        """Serve until a Stop came and nothing is left to do."""
        stopping = False
        while True:
            wait_s = None
            if self.station.ready:
                stop, wait_s = self.step()
                stopping |= stop
                if wait_s is None:
                    stopping |= self._ring(self.event_s)
                    continue
            elif stopping:
                return
            stopping |= self._take_next(wait_s)

    def step(self) -> tuple[bool, float | None]:
        """Run the next step of the station.

        Returns whether the inbox held the end of the run, and how long the station wants to wait where it does not
        start anything yet.
        """
        with self.lock():
            stop = self._drain()  # what came in while waiting for the device is still considered for the step
            asked_s = now_s()
            plan = self.recorded.plan(asked_s - self.zero_s)
            if not isinstance(plan, Start):
                return stop, _pause_s(plan, asked_s - self.zero_s)
            self.before(plan.step)
            outcomes, duration_s = self.timed(lambda: self.executor.run(plan.step))
            ended_s = now_s()
            stop |= self._drain(by_s=ended_s)  # arrivals during the step happened before its end, later ones after it
            outcomes = self.resolved(plan.step, outcomes)
            # Results leave before the device is released: its next user may take the core that would send them.
            self.handle(StepDone(plan.step.number, outcomes, duration_s), NOTHING, ended_s)
            if self.later:
                self._take_due()
        return stop, None

    def handle(self, event: StationEvent, content: Content, time_s: float, payload_bytes: int = 0) -> None:
        """Hand an event to the station; let the executor take its content if the station accepted it."""
        self.event_s = time_s
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes)
        if TURNED_DOWN.isdisjoint(map(type, instructions)):
            self.executor.receive(event, content)
        self.obey(instructions)

    def obey(self, instructions: list[Instruction]) -> None:
        """Carry out what the station asks for."""
        for instruction in instructions:
            if isinstance(instruction, Released):
                self.executor.release(instruction.tag)
            elif isinstance(instruction, WITH_CONTENT):
                self.post(instruction, self.executor.content_of(instruction))
            elif isinstance(instruction, Routed):
                self.post(instruction, self.executor.content_of(instruction.message))
            else:
                self.post(instruction, NOTHING)

    def wait_until(self, due_s: float) -> None:
        """Wait as long as a step that needs no thread; what comes meanwhile is handed over at once, as in a simulation.

        Else news of it would wait for the end of the step.
        """
        stop = False
        while (left_s := due_s - MAX_MARGIN_S - now_s()) > 0:
            stop |= self._take_next(left_s)
        if stop:
            self.inbox.put(Stop())
        self.waiter.until(due_s)

    def _take_next(self, wait_s: float | None) -> bool:
        """Take what comes next, or nothing within `wait_s`; return whether it was the end of the run."""
        time_s = now_s()
        if self.later and self.later[0][0] <= time_s:
            stop = self._drain()
            return self._ring(now_s()) or stop
        due_s = min(self.later[0][0] if self.later else math.inf, self._alarm_s())
        if due_s < math.inf:
            left_s = max(due_s - time_s, 0.0)
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        stop = False
        try:
            stop = self._take(self.inbox.get(timeout=wait_s))
        except queue.Empty:
            if wait_s is not None and now_s() - time_s - wait_s > STILL_S:
                stop = self._read_all()
        self._take_due()
        return self._ring(now_s()) or stop

    def _drain(self, by_s: float = math.inf) -> bool:
        """Take all that has come; return whether the end of the run did. What came after `by_s` is kept for later."""
        stop, inbox = False, self.inbox
        while not inbox.empty():
            stop |= self._take(inbox.get(), by_s)
        if self.later:
            self._take_due(by_s)
        return stop

    def _read_all(self) -> bool:
        """Take what comes until nothing has for READ_S; return as `_drain`."""
        stop = False
        with contextlib.suppress(queue.Empty):
            while True:
                stop |= self._take(self.inbox.get(timeout=READ_S))
        return stop

    def _alarm_s(self) -> float:
        """When silence will mean something to the station."""
        return self.station.alarm_s() + self.zero_s

    def _ring(self, by_s: float) -> bool:
        """Tell the station what silence amounts to, if it does by then, after all that has come; return as `_drain`."""
        if self._alarm_s() > by_s:
            return False
        stop = self._drain()
        time_s = now_s()
        for event in self.station.due(time_s - self.zero_s):
            self.handle(event, NOTHING, time_s)
        return stop

    def _take_due(self, by_s: float = math.inf) -> None:
        """Take what was kept for a time that has come."""
        while self.later and self.later[0][0] <= min(by_s, now_s()):
            self._hand_over(heapq.heappop(self.later)[2])

    def _take(self, item: Item, by_s: float = math.inf) -> bool:
        if isinstance(item, Stop):
            return True
        if isinstance(item.event, Ping):
            self.post(item.event, item.content)  # so that its round trip takes the path of a real message
        elif not self.later and self.inbox.empty() and item.time_s <= min(by_s, now_s()):
            self._hand_over(item)
        else:  # what was kept until a time before comes first
            heapq.heappush(self.later, (item.time_s, next(self.numbers), item))
        return False

    def _hand_over(self, arrival: Arrival) -> None:
        self.handle(arrival.event, arrival.content, arrival.time_s, arrival.payload_bytes)


def _as_they_are(_step: Step, outcomes: Outcomes) -> Outcomes:
    """The outcomes of executors that nothing can surprise."""
    return outcomes


def _pause_s(wait: Wait, time_s: float) -> float | None:
    """How long a station waits for a time, not only for events; None where events alone can move it."""
    return None if wait.until_s is None else max(wait.until_s - time_s, 0.0)
