"""A worker runs one station in real time: an inbox of events, a device, an executor. Without torch.

It owns the station and the executor, and nothing of the network. Events arrive through its inbox; its messages are
posted at once. So input never waits for inference, and inference never for the network.

Processes of one host that share a device hold a lock on it around each step, one at a time.
"""

import contextlib
import fcntl
import heapq
import math
import os
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from specfleet.engine.net.actions import Deliver
from specfleet.engine.net.clock import MAX_MARGIN_S, Waiter, now_s
from specfleet.engine.net.content import NOTHING, Content
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.stations import messages
from specfleet.fleet.stations.station import Start
from specfleet.fleet.times.step import Step

DeviceLock = Callable[[], AbstractContextManager[None]]
"""Returns a context with exclusive use of the device; entering it waits until the device is free."""

no_lock: DeviceLock = nullcontext
"""Never waits: for a device of one station, or of several that run concurrently."""


def device_lock(path: Path | None) -> DeviceLock:
    """Return a lock that excludes all other holders of a lock on the same file, in whatever process.

    Without a file, return a lock that never waits.
    """
    if path is None:
        return no_lock
    file = os.open(path, os.O_RDWR | os.O_CREAT)

    @contextmanager
    def lock() -> Iterator[None]:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    return lock


STILL_S = 0.05  # a wait that ends later by more: this process was stopped
READ_S = 0.05  # without an event for so long, the inbox counts as read
TURNED_DOWN, WITH_CONTENT = frozenset({messages.Ignored, messages.Refusal}), (messages.Draft, messages.DraftRequest)


class Executor:
    """Runs the steps of one station on its models, and keeps the content of its messages."""

    def receive(self, event: messages.StationEvent, content: Content) -> None:
        """Take the content of an event that the station accepted."""

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Run a step; return one outcome a member."""
        return (Outcome(),) * len(step.members)

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Return the outcomes at a step's end, which may depend on arrivals during the step."""
        return outcomes

    def content_of(self, message: messages.Message) -> Content:
        """Return the content of a message of the station."""
        return NOTHING

    def release(self, tag: int) -> None:
        """Forget a finished request of `tag`."""


class Stop(msgspec.Struct, frozen=True):
    """The last event of an inbox: end after the running step, or, `when_done`, once all work is done."""

    when_done: bool = False


Item = tuple[float, Deliver] | Stop
"""An event and the time at which it reached this host; it is held until then."""
Outcomes = tuple[Outcome, ...]
Timed = Callable[[Callable[[], Outcomes]], tuple[Outcomes, float]]
"""Does a step's work; returns its outcomes and its time in seconds on the device's own clock."""


def by_the_clock(work: Callable[[], Outcomes]) -> tuple[Outcomes, float]:
    """Do a step's work; return its outcomes and its time in seconds."""
    started_s = time.perf_counter()
    outcomes = work()
    return outcomes, time.perf_counter() - started_s


@dataclass(eq=False)
class Worker:
    """One station, its executor and its device, in the thread that calls `run`.

    - `post(instruction, content)`: carries out an instruction of the station.
    - `zero_s`: the run's time zero on this host.
    """

    recorded: RecordedStation
    executor: Executor
    post: Callable[[Any, Content], None]
    timed: Timed = by_the_clock
    lock: DeviceLock = no_lock
    zero_s: float = 0.0

    def __post_init__(self) -> None:
        self.station = self.recorded.station
        self.later: list[tuple[float, int, Deliver]] = []  # a heap of events with a later delivery time
        self.numbers = count()
        self.before: Callable[[Step], None] = lambda _step: None  # called right before a step's work
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.waiter = Waiter()
        self.event_s = 0.0  # of the last event
        self.stopping = self.draining = False  # after a Stop: at once, or when all work is done

    def run(self) -> None:
        """Serve until a Stop ends it."""
        while not self.stopping:
            wait_s = None
            if self.station.ready:
                wait_s = self.step()
                if wait_s is None:
                    self._ring(self.event_s)
                    continue
            elif self.draining:
                return
            self._take_next(wait_s)

    def step(self) -> float | None:
        """Run the next step of the station; return how long the station wants to wait if it starts no step."""
        with self.lock():
            self._drain()  # events during the wait for the device still count for the step
            asked_s = now_s()
            plan = self.recorded.plan(asked_s - self.zero_s)
            if not isinstance(plan, Start):
                return None if plan.until_s is None else max(plan.until_s - (asked_s - self.zero_s), 0.0)
            self.before(plan.step)
            outcomes, duration_s = self.timed(lambda: self.executor.run(plan.step))
            ended_s = now_s()
            self._drain(by_s=ended_s)  # arrivals during the step precede its end, later ones follow it
            outcomes = self.executor.resolved(plan.step, outcomes)
            # Results leave before the device is released: its next user may take the core of the sending thread.
            self.handle(messages.StepDone(plan.step.number, outcomes, duration_s), NOTHING, ended_s)
            if self.later:
                self._take_due()
        return None

    def handle(self, event: messages.StationEvent, content: Content, time_s: float, payload_bytes: int = 0) -> None:
        """Apply an event to the station; the executor takes its content if the station accepts it."""
        self.event_s = time_s
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes)
        if TURNED_DOWN.isdisjoint(map(type, instructions)):
            self.executor.receive(event, content)
        for instruction in instructions:
            if isinstance(instruction, messages.Released):
                self.executor.release(instruction.tag)
            elif isinstance(instruction, WITH_CONTENT):
                self.post(instruction, self.executor.content_of(instruction))
            elif isinstance(instruction, messages.Routed):
                self.post(instruction, self.executor.content_of(instruction.message))
            else:
                self.post(instruction, NOTHING)

    def wait_until(self, due_s: float) -> None:
        """Wait for the end of a step without a thread; events of the meantime are applied at once, as in a simulation.

        Else they would wait for the end of the step.
        """
        while (left_s := due_s - MAX_MARGIN_S - now_s()) > 0:
            self._take_next(left_s)
        self.waiter.until(due_s)

    def _take_next(self, wait_s: float | None) -> None:
        """Apply the next event, or none within `wait_s`."""
        time_s = now_s()
        if self.later and self.later[0][0] <= time_s:
            self._drain()
            self._ring(now_s())
            return
        due_s = min(self.later[0][0] if self.later else math.inf, self.alarm_s())
        if due_s < math.inf:
            left_s = max(due_s - time_s, 0.0)
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        try:
            self._take(self.inbox.get(timeout=wait_s))
        except queue.Empty:
            if wait_s is not None and now_s() - time_s - wait_s > STILL_S:
                with contextlib.suppress(queue.Empty):  # apply events until none arrives for READ_S
                    while True:
                        self._take(self.inbox.get(timeout=READ_S))
        self._take_due()
        self._ring(now_s())

    def _drain(self, by_s: float = math.inf) -> None:
        """Apply all events up to `by_s`, and keep later ones."""
        while not self.inbox.empty():
            self._take(self.inbox.get(), by_s)
        if self.later:
            self._take_due(by_s)

    def alarm_s(self) -> float:
        """Return the time of the station's next timeout, by the engine's clock."""
        return self.station.alarm_s() + self.zero_s

    def _ring(self, by_s: float) -> None:
        """Apply the station's timeout if it is due by then, after all events."""
        if self.alarm_s() > by_s:
            return
        self._drain()
        time_s = now_s()
        for event in self.station.due(time_s - self.zero_s):
            self.handle(event, NOTHING, time_s)

    def _take_due(self, by_s: float = math.inf) -> None:
        """Apply events with a delivery time that has come."""
        while self.later and self.later[0][0] <= min(by_s, now_s()):
            time_s, _, arrival = heapq.heappop(self.later)
            self._hand_over(arrival, time_s)

    def _take(self, item: Item, by_s: float = math.inf) -> None:
        if isinstance(item, Stop):
            self.draining, self.stopping = True, self.stopping or not item.when_done
            return
        time_s, arrival = item
        if not self.later and self.inbox.empty() and time_s <= min(by_s, now_s()):
            self._hand_over(arrival, time_s)
        else:  # delayed events of an earlier time come first
            heapq.heappush(self.later, (time_s, next(self.numbers), arrival))

    def _hand_over(self, arrival: Deliver, time_s: float) -> None:
        self.handle(arrival.event, arrival.content, time_s, arrival.payload_bytes)
