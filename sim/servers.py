"""Servers and devices: stations driven by simulated time.

A server asks its station for a plan and lets the step's time pass on a device. Most stations own their device; some
share one, by turns or contended. Steps are SimPy timeouts with a callback, the mechanism under SimPy's processes:
a generator for each server would cost a third of the speed and say nothing more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple

from simpy import Environment
from simpy.events import Event

from fleet.policies.outcome import Outcome
from fleet.records.recorded import RecordedStation
from fleet.stations.messages import Instruction, StationEvent, StepDone
from fleet.stations.station import Start
from fleet.times.durations import Duration
from fleet.times.effects import NEVER_IDLE, IdleEffect, LoadCount, RecentLoad
from fleet.times.pace import HostPace
from fleet.times.station_times import Delays
from fleet.times.step import Step


class Service(NamedTuple):
    """How a station's steps go: how long one takes on an uncontended device, and what its members get out of it."""

    duration_s: Duration
    outcomes: Callable[[Step], tuple[Outcome, ...]]


class Lateness(NamedTuple):
    """Of one station, step by step, in seconds: what passes before one begins, and before its end is known."""

    starts_s: Iterator[float]
    ends_s: Iterator[float]


ALIKE = repeat(1.0)


class Server:
    """One station in simulated time.

    `post(instruction)`: carries out what the station asks for. `delays`: what passes between steps; meanwhile the
    station already sends and receives. `pace`: slowness of its host, for what passes between and around steps; that of
    steps is in their durations. `idle`: what idleness does to that. `jitter`: of single turnarounds and wake-ups, as
    multipliers. Of a run that is played back, `late`: what passed there, in place of `delays`; `core_waits_s`: what
    steps waited for a core, beside them.
    """

    def __init__(
        self,
        env: Environment,
        station: RecordedStation,
        device: "Device",
        service: Service,
        post: Callable[[Instruction], None],
        delays: Delays,
        pace: HostPace | None = None,
        idle: IdleEffect = NEVER_IDLE,
        jitter: Iterator[float] = ALIKE,
        late: Lateness | None = None,
        core_waits_s: Iterator[float] | None = None,
    ) -> None:
        self.env = env
        self.recorded = station
        self.handle = station.handle
        self.station = station.station
        self.device = device
        self.duration_s, self.outcomes = service
        self.post = post
        self.late = late
        self.ending_s = 0.0  # of the running step, from its end on the device until the station knows
        if late is not None:
            delays = Delays()
        self.core_waits_s = core_waits_s
        self.core_wait_s = 0.0  # before the next step
        self.jitter = jitter
        self.turnaround_s = delays.turnaround_s
        self.turnaround_row_s = delays.turnaround_row_s
        self.wake_up_s = delays.wake_up_s
        self.dispatch_s = delays.dispatch_s
        self.pace = pace
        self.overhead = idle.overhead
        self.idle = True
        self.gap_s = 0.0  # of idleness before the last step
        self.ended_s = 0.0
        self.pausing = False  # turning around, or waking up

    def deliver(self, event: StationEvent, payload_bytes: int = 0, core_wait_s: float = 0.0) -> None:
        """Hand an event to the station now, and go on with what it wants to do."""
        for instruction in self.handle(event, self.env.now, payload_bytes, core_wait_s):
            self.post(instruction)
        if self.station.ready and not self.pausing:
            if self.late is not None:
                self.device.offer_late(self, self.late.starts_s)
            elif self.idle and self.wake_up_s:
                self.pause(self.around(self.wake_up_s, self.idle_s) * next(self.jitter), self._ask)
            else:
                self._ask()

    def begin(self, recent_load: float) -> tuple[Step, float] | None:
        """Start the planned step; return it with its time on an uncontended device of that recent load.

        The time includes the dispatch, or what passed in its place where a run is played back.
        """
        plan = self.recorded.plan(self.env.now, self.core_wait_s)
        self.core_wait_s = 0.0
        if not isinstance(plan, Start):
            if plan.until_s is not None and plan.until_s > self.env.now:
                self.env.timeout(plan.until_s - self.env.now).callbacks.append(lambda _: self.device.offer(self))
            return None
        self.gap_s = self.env.now - self.ended_s
        if self.late is not None:
            self.ending_s = next(self.late.ends_s)
        elif self.dispatch_s:
            self.ending_s = self.around(self.dispatch_s, self.gap_s)
        return plan.step, self.duration_s(plan.step, recent_load) + self.ending_s

    def finish(self, step: Step, duration_s: float) -> None:
        """Report the running step as done."""
        self.idle = False
        self.ended_s = self.env.now
        if self.turnaround_s or self.turnaround_row_s:
            rows = len(step.members) + step.ballast
            turnaround_s = self.turnaround_s + self.turnaround_row_s * (rows - 1)
            self.pause(self.paced(turnaround_s) * next(self.jitter), self._ask)
        self.deliver(StepDone(step.number, self.outcomes(step), duration_s - self.ending_s))
        if self.wake_up_s:
            self.idle = self.station.running is None and not self.station.ready

    def paced(self, time_s: float) -> float:
        """Return how long something between steps takes at the host's pace of now."""
        return time_s * self.pace.at(self.env.now) if self.pace else time_s

    @property
    def idle_s(self) -> float:
        """How long the station has run no step."""
        return 0.0 if self.station.running is not None else self.env.now - self.ended_s

    def around(self, time_s: float, idle_s: float) -> float:
        """Return how long something around a step takes at the host's pace of now, where it was idle for `idle_s`."""
        return self.paced(time_s) * self.overhead(idle_s)

    def pause(self, pause_s: float, ask: Callable[[], None]) -> None:
        """Let time pass, then `ask` for the device if there is something to start."""
        self.pausing = True
        self.env.timeout(pause_s).callbacks.append(partial(self._go_on, ask))

    def _go_on(self, ask: Callable[[], None], _pause: Event) -> None:
        self.pausing = False
        self.idle = not self.station.ready
        if not self.idle:
            ask()

    def _ask(self) -> None:
        """Offer the station to its device, once its thread has a core."""
        if self.core_waits_s is None:
            self.device.offer(self)
        else:
            self.device.offer_late(self, self._core_waits())

    def _core_waits(self) -> Iterator[float]:
        """Yield what the next step waits for a core."""
        assert self.core_waits_s is not None
        self.core_wait_s = next(self.core_waits_s)
        yield self.core_wait_s


class Device:
    """Where steps run. A server offers itself whenever its station has something to start."""

    def offer(self, server: Server) -> None:
        """Let `server` start a step, now or when its turn comes."""
        raise NotImplementedError  # each kind of device decides when

    def offer_late(self, server: Server, lates_s: Iterator[float]) -> None:
        """Let `server` start a step so much after it could as its next one did in a run that is played back."""
        late_s = next(lates_s)
        if late_s:
            server.pause(late_s, partial(self.offer, server))
        else:  # before what else happens in this instant
            self.offer(server)


class OwnDevice(Device):
    """A device of one station alone: every step starts at once.

    `effect`: how recent load changes speed, if it does; the device then keeps count of its own.
    """

    def __init__(self, effect: RecentLoad | None = None) -> None:
        self.used = LoadCount(effect) if effect else None

    def offer(self, server: Server) -> None:
        """Start the server's step."""
        begun = server.begin(self.used.until(server.env.now, busy=False) if self.used else 1.0)
        if begun is not None:
            end = server.env.timeout(begun[1])
            end.callbacks.append(partial(self._end, server, *begun))

    def _end(self, server: Server, step: Step, duration_s: float, _end: Event) -> None:
        if self.used:
            self.used.until(server.env.now, busy=True)
        server.finish(step, duration_s)


class BatchDevice(OwnDevice):
    """A device of a batch alone: a step takes in whatever comes in the instant in which it begins.

    So does the engine's loop: it takes all requests whose time has come, then begins a step.
    """

    def offer(self, server: Server) -> None:
        """Start the server's step when this instant is over."""
        server.pause(0.0, partial(super().offer, server))


class TurnsDevice(Device):
    """A device whose stations exclude each other; turns go in the order of asking.

    It is handed over in `handover_s`, from the end of a step on. `turns`: names of stations whose turns they are, in
    order, where that is played back.
    """

    def __init__(self, handover_s: float, turns: Iterable[str] = ()) -> None:
        self.handover_s = handover_s
        self.turns = deque(turns)
        self.asking: deque[Server] = deque()
        self.lates_s: dict[Server, Iterator[float]] = {}
        self.busy = False

    def offer(self, server: Server) -> None:
        """Queue the server for its turn."""
        if server not in self.asking:
            self.asking.append(server)
        self._next_turn()

    def offer_late(self, server: Server, lates_s: Iterator[float]) -> None:
        """Queue the server for its turn, which begins late."""
        self.lates_s[server] = lates_s
        self.offer(server)

    def _next_turn(self) -> None:
        while not self.busy and (server := self._whose_turn()) is not None:
            late_s = next(self.lates_s[server]) if server in self.lates_s else 0.0
            if late_s:
                self.busy = server.pausing = True
                server.env.timeout(late_s).callbacks.append(partial(self._begin_late, server))
            else:
                self._begin(server)

    def _whose_turn(self) -> Server | None:
        """Take the next server out of the queue; None if it does not ask yet."""
        if not self.turns:
            return self.asking.popleft() if self.asking else None
        server = next((server for server in self.asking if server.station.name == self.turns[0]), None)
        if server is not None:
            self.asking.remove(server)
            self.turns.popleft()
        return server

    def _begin_late(self, server: Server, _late: Event) -> None:
        self.busy = server.pausing = False
        self._begin(server)
        self._next_turn()

    def _begin(self, server: Server) -> None:
        begun = server.begin(recent_load=1.0)
        if begun is not None:
            self.busy = True
            end = server.env.timeout(begun[1])
            end.callbacks.append(partial(self._end, server, *begun))

    def _end(self, server: Server, step: Step, duration_s: float, _end: Event) -> None:
        if self.handover_s:
            server.env.timeout(server.paced(self.handover_s)).callbacks.append(self._free)
        else:
            self.busy = False
        server.finish(step, duration_s)
        self._next_turn()

    def _free(self, _pause: Event) -> None:
        self.busy = False
        self._next_turn()


class ContendedDevice(Device):
    """A device whose stations run at once and slow each other.

    With k steps active, each of them advances at 1 / factors[k-1] of its own speed (the last factor beyond the list).
    """

    def __init__(self, factors: tuple[float, ...]) -> None:
        self.factors = factors
        self.active: dict[Server, _Progress] = {}
        self.updated_s = 0.0

    def offer(self, server: Server) -> None:
        """Start the server's step beside those that run."""
        begun = server.begin(recent_load=1.0)
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
