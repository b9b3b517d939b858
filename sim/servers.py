"""Servers and devices: stations driven by simulated time.

A server runs the planned steps of its station on a device. Most stations own their device; others share one,
time-sliced or concurrent. Steps are SimPy timeouts with a callback: generators would cost a third of the speed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
from simpy import Environment
from simpy.events import Event

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.stations.messages import Instruction, StationEvent, StepDone
from specfleet.fleet.stations.station import Start
from specfleet.fleet.times.durations import Duration, delays_s
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.step import Step


class Delays(NamedTuple):
    """Overhead of one station in seconds, drawn or played back (`fleet/times/overhead.py`)."""

    queued_s: Iterator[float]
    woken_s: Iterator[float]
    after_s: Iterator[float]


TIE_S = 1e-9  # by which sums of equal times differ, and less than any step
NO_DELAYS = Delays(repeat(0.0), repeat(0.0), repeat(0.0))


def at_last(yields: bool, env: Environment, call: Callable[[], None]) -> None:
    """Call a function now, or if it yields, after what else is due at this instant up to rounding."""
    if yields and env.peek() <= env.now + TIE_S:
        env.timeout(TIE_S).callbacks.append(lambda _: call())
    else:
        call()


def drawn_delays(overhead: Overhead, rng: np.random.Generator) -> Delays:
    """Draw the delays of a station, each kind from its own generator."""
    if overhead == Overhead():
        return NO_DELAYS
    queued, woken, after = rng.spawn(3)
    return Delays(delays_s(overhead.queued, queued), delays_s(overhead.woken, woken), delays_s(overhead.after, after))


class Server:
    """One station in simulated time, and the device of its steps.

    - `duration_s`: gives the duration of a step on an uncontended device.
    - `post`: carries out the instructions of the station.
    - `delays`: its overhead, during which the station sends and receives.
    """

    def __init__(
        self,
        env: Environment,
        station: RecordedStation,
        device: "Device",
        duration_s: Duration,
        outcomes: Callable[[Step], tuple[Outcome, ...]],
        post: Callable[[Instruction], None],
        delays: Delays = NO_DELAYS,
    ) -> None:
        self.env = env
        self.recorded = station
        self.handle = station.handle
        self.station = station.station
        self.device = device
        self.duration_s = duration_s
        self.outcomes = outcomes
        self.post = post
        self.delays = delays
        self.after_s = 0.0  # delay after the running step
        self.queued = False  # whether work was waiting when the last step ended
        self.delayed = False  # whether the delay before the next step is over
        self.pausing = False  # whether that delay runs
        self.pause_end: Event | None = None
        self.yields = False  # whether its steps end after all else of their instant

    def deliver(self, event: StationEvent, payload_bytes: int = 0) -> None:
        """Hand an event to the station, carry out its instructions, and request its next step."""
        for instruction in self.handle(event, self.env.now, payload_bytes):
            self.post(instruction)
        if not self.station.ready:
            self.withdraw()
        elif not self.pausing:
            self.queued |= type(event) is StepDone
            self.device.offer(self)

    def withdraw(self) -> None:
        """Take back the start of a step; the next one has its own delay."""
        self.queued = self.delayed = False
        if self.pause_end is not None:
            self.pausing, self.pause_end = False, None
        self.device.withdraw(self)

    def start_delay_s(self, waited: bool = False) -> float:
        """Return the delay before the next step, once. `waited`: whether the station waited for its device."""
        if self.delayed or self.delays is NO_DELAYS:
            return 0.0
        self.delayed = True
        return next(self.delays.queued_s if self.queued or waited else self.delays.woken_s)

    def begin(self) -> tuple[Step, float] | None:
        """Start the planned step. Return it and its uncontended duration, the delay after it included."""
        plan = self.recorded.plan(self.env.now)
        if not isinstance(plan, Start):
            if plan.until_s is not None and plan.until_s > self.env.now:
                self.env.timeout(plan.until_s - self.env.now).callbacks.append(self._request_step)
            return None
        self.queued = self.delayed = False
        self.after_s = next(self.delays.after_s)
        return plan.step, self.duration_s(plan.step) + self.after_s

    def finish(self, step: Step, duration_s: float) -> None:
        """Report the running step as done; of a server that yields, after what else is due."""
        at_last(self.yields, self.env, partial(self._report, step, duration_s))

    def _report(self, step: Step, duration_s: float) -> None:
        if self.station.running is step:  # it may have died meanwhile
            self.deliver(StepDone(step.number, self.outcomes(step), duration_s - self.after_s))

    def pause(self, pause_s: float, start: Callable[["Server"], None]) -> None:
        """Wait `pause_s` seconds, then `start` the next step if the station is ready."""
        self.pausing, self.pause_end = True, self.env.timeout(pause_s)
        self.pause_end.callbacks.append(partial(self._resume, start))

    def _resume(self, start: Callable[["Server"], None], pause_end: Event) -> None:
        if pause_end is not self.pause_end:
            return
        self.pausing, self.pause_end = False, None
        if self.station.ready:
            start(self)

    def _request_step(self, _time: Event | None = None) -> None:
        if self.station.ready and not self.pausing:
            self.device.offer(self)


class Device:
    """A device of one station: every step starts at once. A server offers itself when its station is ready."""

    def offer(self, server: Server) -> None:
        """Start a step of `server`, after the delay before it."""
        delay_s = server.start_delay_s()
        if delay_s:
            server.pause(delay_s, self.start)
        else:  # before other events at this time
            self.start(server)

    def withdraw(self, server: Server) -> None:
        """Forget the offer of a server that has no step to start."""

    def start(self, server: Server) -> None:
        """Start the server's step."""
        self._begin(server)

    def _begin(self, server: Server) -> bool:
        begun = server.begin()
        if begun is not None:
            server.env.timeout(begun[1]).callbacks.append(partial(self._end, server, *begun))
        return begun is not None

    def _end(self, server: Server, step: Step, duration_s: float, _end: Event) -> None:
        server.finish(step, duration_s)


class GatheringDevice(Device):
    """The device of a target with aligned rows. A step includes all requests that arrive at its start time."""

    def start(self, server: Server) -> None:
        """Start the server's step after all other events at this time."""
        server.pause(0.0, super().start)


class TimeSlicedDevice(Device):
    """A device that runs one step at a time, first come first served. The delay before a step holds the device.

    - `turns`: names of stations in the order of their measured steps, if that order is played back.
    """

    def __init__(self, turns: Iterable[str] = ()) -> None:
        self.turns = deque(turns)
        self.queue: dict[Server, bool] = {}  # in order of arrival; whether each waits for the device
        self.busy = False

    def offer(self, server: Server) -> None:
        """Add the server to the queue."""
        self.queue.setdefault(server, self.busy)
        self._next_turn()

    def withdraw(self, server: Server) -> None:
        """Remove the server from the queue."""
        self.queue.pop(server, None)

    def start(self, server: Server) -> None:
        """Start the server's step, which holds the device until its end."""
        self.busy = self._begin(server)

    def _next_turn(self) -> None:
        while not self.busy and (server := self._next_server()) is not None:
            delay_s = server.start_delay_s(self.queue.pop(server))
            if delay_s:
                self.busy = server.pausing = True
                server.env.timeout(delay_s).callbacks.append(partial(self._start_late, server))
            else:
                self.start(server)

    def _next_server(self) -> Server | None:
        """Return the next server; None if it is not in the queue."""
        if not self.turns:
            return next(iter(self.queue), None)
        server = next((server for server in self.queue if server.station.name == self.turns[0]), None)
        if server is not None:
            self.turns.popleft()
        return server

    def _start_late(self, server: Server, _delay: Event) -> None:
        server.pausing = False
        self.start(server)
        self._next_turn()

    def _end(self, server: Server, step: Step, duration_s: float, _end: Event) -> None:
        self.busy = False
        super()._end(server, step, duration_s, _end)
        self._next_turn()


class ContendedDevice(Device):
    """A device that runs steps concurrently.

    With k active steps, each advances at 1 / factors[k-1] of its speed. The last factor holds for larger k.
    """

    def __init__(self, factors: tuple[float, ...]) -> None:
        self.factors = factors
        self.active: dict[Server, _Progress] = {}
        self.updated_s = 0.0

    def start(self, server: Server) -> None:
        """Start the server's step beside the active ones."""
        begun = server.begin()
        if begun is None:
            return
        self._advance(server.env.now)
        self.active[server] = _Progress(begun[0], begun[1], server.env.now)
        self._reschedule(server.env)

    @property
    def _factor(self) -> float:
        return self.factors[min(len(self.active), len(self.factors)) - 1]

    def _advance(self, now_s: float) -> None:
        """Subtract the work done since the last change of the active set."""
        for progress in self.active.values():
            progress.left_s -= (now_s - self.updated_s) / self._factor
        self.updated_s = now_s

    def _reschedule(self, env: Environment) -> None:
        for server, progress in self.active.items():
            progress.version += 1
            timeout = env.timeout(max(0.0, progress.left_s * self._factor), progress.version)
            timeout.callbacks.append(partial(self._end_if_due, server, progress))

    def _end_if_due(self, server: Server, progress: "_Progress", timeout: Event) -> None:
        if self.active.get(server) is not progress or timeout.value != progress.version:
            return  # a change of the active set moved this end
        now_s = server.env.now
        self._advance(now_s)
        del self.active[server]
        self._reschedule(server.env)
        server.finish(progress.step, now_s - progress.started_s)


@dataclass
class _Progress:
    """A running step on a contended device, and the rest of its uncontended duration."""

    step: Step
    left_s: float
    started_s: float
    version: int = 0
