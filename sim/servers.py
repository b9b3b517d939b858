"""Servers and devices: stations driven by simulated time.

A server asks its station for a plan and lets the step's time pass on a device. Most stations own their device; some
share one, by turns or contended. Steps are SimPy timeouts with a callback, the mechanism under SimPy's processes:
a generator for each server would cost a third of the speed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
from simpy import Environment
from simpy.events import Event

from fleet.policies.outcome import Outcome
from fleet.records.recorder import RecordedStation
from fleet.stations.messages import Instruction, StationEvent, StepDone
from fleet.stations.station import Start
from fleet.times.durations import Duration, delays_s
from fleet.times.overhead import Overhead
from fleet.times.step import Step


class Service(NamedTuple):
    """How a station's steps go: how long one takes on an uncontended device, and what its members get out of it."""

    duration_s: Duration
    outcomes: Callable[[Step], tuple[Outcome, ...]]


class Delays(NamedTuple):
    """Overhead of one station in seconds, value by value: drawn, or played back (`fleet/times/overhead.py`)."""

    queued_s: Iterator[float]
    woken_s: Iterator[float]
    after_s: Iterator[float]


def drawn_delays(overhead: Overhead, rng: np.random.Generator) -> Delays:
    """Draw the delays of a station, each kind from a source of its own."""
    queued, woken, after = rng.spawn(3)
    return Delays(delays_s(overhead.queued, queued), delays_s(overhead.woken, woken), delays_s(overhead.after, after))


NO_DELAYS = Delays(repeat(0.0), repeat(0.0), repeat(0.0))


class Server:
    """One station in simulated time.

    Args:
        env: The simulation.
        station: The station, which records what happens.
        device: Where its steps run.
        service: How long its steps take, and what they yield.
        post: Carries out what the station asks for.
        delays: Its overhead. Meanwhile the station sends and receives.
    """

    def __init__(
        self,
        env: Environment,
        station: RecordedStation,
        device: "Device",
        service: Service,
        post: Callable[[Instruction], None],
        delays: Delays = NO_DELAYS,
    ) -> None:
        self.env = env
        self.recorded = station
        self.handle = station.handle
        self.station = station.station
        self.device = device
        self.duration_s, self.outcomes = service
        self.post = post
        self.delays = delays
        self.after_s = 0.0  # of the running step
        self.queued = False  # whether work was waiting when the last step ended
        self.delayed = False  # whether the delay before the next step has passed
        self.pausing = False  # in that delay

    def deliver(self, event: StationEvent, payload_bytes: int = 0) -> None:
        """Hand an event to the station now, and go on with what it wants to do."""
        for instruction in self.handle(event, self.env.now, payload_bytes):
            self.post(instruction)
        if not self.station.ready:
            self.queued = self.delayed = False
        elif not self.pausing:
            self.queued |= type(event) is StepDone
            self.device.offer(self)

    def start_delay_s(self, waited: bool = False) -> float:
        """Take the delay before the next step, once; `waited`: whether the station had to wait for its device."""
        if self.delayed:
            return 0.0
        self.delayed = True
        return next(self.delays.queued_s if self.queued or waited else self.delays.woken_s)

    def begin(self) -> tuple[Step, float] | None:
        """Start the planned step; return it with its time on an uncontended device, the delay after it included."""
        plan = self.recorded.plan(self.env.now)
        if not isinstance(plan, Start):
            if plan.until_s is not None and plan.until_s > self.env.now:
                self.env.timeout(plan.until_s - self.env.now).callbacks.append(self._ask)
            return None
        self.queued = self.delayed = False
        self.after_s = next(self.delays.after_s)
        return plan.step, self.duration_s(plan.step) + self.after_s

    def finish(self, step: Step, duration_s: float) -> None:
        """Report the running step as done."""
        self.deliver(StepDone(step.number, self.outcomes(step), duration_s - self.after_s))

    def pause(self, pause_s: float, start: Callable[["Server"], None]) -> None:
        """Let time pass, then `start` the next step if there still is one."""
        self.pausing = True
        self.env.timeout(pause_s).callbacks.append(partial(self._go_on, start))

    def _go_on(self, start: Callable[["Server"], None], _pause: Event) -> None:
        self.pausing = False
        if self.station.ready:
            start(self)

    def _ask(self, _time: Event | None = None) -> None:
        """Ask the device for a step, if there is something to start."""
        if self.station.ready and not self.pausing:
            self.device.offer(self)


class Device:
    """Where steps run. A server offers itself whenever its station has something to start."""

    def offer(self, server: Server) -> None:
        """Let `server` start a step, after the delay before it."""
        delay_s = server.start_delay_s()
        if delay_s:
            server.pause(delay_s, self.start)
        else:  # before what else happens in this instant
            self.start(server)

    def start(self, server: Server) -> None:
        """Start the server's step."""
        raise NotImplementedError  # each kind of device has its own way


class OwnDevice(Device):
    """A device of one station alone: every step starts at once."""

    def start(self, server: Server) -> None:
        """Start the server's step."""
        begun = server.begin()
        if begun is not None:
            server.env.timeout(begun[1]).callbacks.append(partial(self._end, server, *begun))

    def _end(self, server: Server, step: Step, duration_s: float, _end: Event) -> None:
        server.finish(step, duration_s)


class BatchDevice(OwnDevice):
    """A device of a batch alone: a step takes in whatever comes in the instant in which it begins.

    So does the engine's loop: it takes all requests whose time has come, then begins a step.
    """

    def start(self, server: Server) -> None:
        """Start the server's step when this instant is over."""
        server.pause(0.0, super().start)


class TurnsDevice(Device):
    """A device whose stations exclude each other; turns go in the order of asking, and begin with the delay.

    `turns`: names of stations whose turns they are, in order, where that is played back.
    """

    def __init__(self, turns: Iterable[str] = ()) -> None:
        self.turns = deque(turns)
        self.asking: dict[Server, bool] = {}  # in order; whether each has to wait for the device
        self.busy = False

    def offer(self, server: Server) -> None:
        """Queue the server for its turn."""
        self.asking.setdefault(server, self.busy)
        self._next_turn()

    def start(self, server: Server) -> None:
        """Start the server's step, and keep the device until it ends."""
        begun = server.begin()
        self.busy = begun is not None
        if begun is not None:
            server.env.timeout(begun[1]).callbacks.append(partial(self._end, server, *begun))

    def _next_turn(self) -> None:
        while not self.busy and (server := self._whose_turn()) is not None:
            delay_s = server.start_delay_s(self.asking.pop(server))
            if delay_s:
                self.busy = server.pausing = True
                server.env.timeout(delay_s).callbacks.append(partial(self._start_late, server))
            else:
                self.start(server)

    def _whose_turn(self) -> Server | None:
        """Return the server that is next; None if it does not ask yet."""
        if not self.turns:
            return next(iter(self.asking), None)
        server = next((server for server in self.asking if server.station.name == self.turns[0]), None)
        if server is not None:
            self.turns.popleft()
        return server

    def _start_late(self, server: Server, _delay: Event) -> None:
        server.pausing = False
        self.start(server)
        self._next_turn()

    def _end(self, server: Server, step: Step, duration_s: float, _end: Event) -> None:
        self.busy = False
        server.finish(step, duration_s)
        self._next_turn()


class ContendedDevice(Device):
    """A device whose stations run at once and slow each other.

    With k steps active, each of them advances at 1 / factors[k-1] of its own speed (the last factor beyond the list).
    """

    def __init__(self, factors: tuple[float, ...]) -> None:
        self.factors = factors
        self.active: dict[Server, _Progress] = {}
        self.updated_s = 0.0

    def start(self, server: Server) -> None:
        """Start the server's step beside those that run."""
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
        """Book the work done since the last change of the active set."""
        for progress in self.active.values():
            progress.left_s -= (now_s - self.updated_s) / self._factor
        self.updated_s = now_s

    def _reschedule(self, env: Environment) -> None:
        for server, progress in self.active.items():
            progress.version += 1
            timeout = env.timeout(max(0.0, progress.left_s * self._factor), progress.version)
            timeout.callbacks.append(partial(self._end, server, progress))

    def _end(self, server: Server, progress: "_Progress", timeout: Event) -> None:
        if self.active.get(server) is not progress or timeout.value != progress.version:
            return  # the active set changed since this end was foreseen
        now_s = server.env.now
        self._advance(now_s)
        del self.active[server]
        self._reschedule(server.env)
        server.finish(progress.step, now_s - progress.started_s)


class _Progress:
    """A running step on a contended device: how much of its uncontended time is left."""

    def __init__(self, step: Step, left_s: float, started_s: float) -> None:
        self.step = step
        self.left_s = left_s
        self.started_s = started_s
        self.version = 0
