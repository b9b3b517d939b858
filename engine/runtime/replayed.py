"""Replayed targets: many of them in one light process without a model, for hardware that this machine does not have.

A verification takes the time that the scenario states for such a target; what it accepts, `answers.py` says. Transport
and queueing stay real; so do drafting and acceptance, where a real drafter's tokens are compared with real text.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from engine.runtime.actions import HELLO_S, Action, Deliver, Turned
from engine.runtime.answers import Answers
from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content
from engine.runtime.core_waits import CoreWaits, all_threads
from engine.runtime.exchange import Exchange
from engine.runtime.identity import Ping
from engine.runtime.keys import Keys
from engine.runtime.limits import most_bytes
from engine.runtime.line import Line
from engine.runtime.socket_thread import TICK_S
from engine.runtime.sockets import Sockets
from engine.runtime.transport import carry_out
from engine.runtime.waiting import Margin
from fleet.chance.sources import sources_of
from fleet.errors import InputError
from fleet.records.recorded import Log, RecordedStation
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import requests_of
from fleet.stations.build import join_of, verifier_station
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Leave,
    Message,
    Released,
    StationEvent,
    StepDone,
)
from fleet.stations.station import Start, Station
from fleet.times.durations import verifier_durations
from fleet.times.step import Step


class ReplayedTarget:
    """Target number `target`: its station, its user; `due_s` holds its running step and when it ends."""

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        answers: Callable[[Station], Answers],
        post: Callable[[Message, Content], None],
        zero_s: float,
        log: Log,
    ) -> None:
        self.fleet = fleet
        self.target = target
        self.post = post
        self.zero_s = zero_s
        self.recorded = RecordedStation(verifier_station(fleet, target), "replayed", log)
        self.duration_s = verifier_durations(
            fleet.verifier_times(target),
            fleet.drafters.shape,
            fleet.verifiers.padded,
            sources_of(fleet.seed).targets.spawn(fleet.verifiers.count)[target],
        )
        self.requests = requests_of(fleet, target)
        self.answers = answers(self.recorded.station)
        self.draft = NOTHING
        self.finished = False
        self.running: Step | None = None
        self.started_s = self.due_s = 0.0

    def next_request(self) -> None:
        """Let the user send the next request, if any is left."""
        request = next(self.requests, None)
        if request is None:
            self.finished = True
        else:
            self.answers.begin(self.target, request)
            self.deliver(join_of(self.fleet, self.target, request), NOTHING, now_s())

    def deliver(
        self, event: StationEvent, content: Content, time_s: float, payload_bytes: int = 0, core_wait_s: float = 0.0
    ) -> None:
        """Hand an event to the station, carry out its instructions, and start what it plans."""
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes, core_wait_s)
        if isinstance(event, Draft) and not any(isinstance(instruction, Ignored) for instruction in instructions):
            self.draft = content
        for instruction in instructions:
            self._post(instruction)
        if self.recorded.station.ready:
            plan = self.recorded.plan(time_s - self.zero_s)
            if isinstance(plan, Start):
                self.running, self.started_s = plan.step, time_s
                self.due_s = time_s + self.duration_s(plan.step, 1.0)

    def finish(self) -> None:
        """End the running step."""
        step, self.running = self.running, None
        assert step is not None
        outcomes = self.answers.outcomes(step, self.draft)
        ended_s = now_s()
        self.deliver(StepDone(step.number, outcomes, ended_s - self.started_s), NOTHING, ended_s)

    def _post(self, instruction: Instruction) -> None:
        match instruction:
            case DraftRequest():
                self.post(instruction, self.answers.content_of(instruction))
            case Leave():
                self.post(instruction, NOTHING)
            case Finished():
                self.next_request()
            case _:
                assert isinstance(instruction, Released | Ignored), instruction


class ReplayedFleet:
    """Replayed targets of a fleet (all, or the given numbers) in one thread, each with a line of its own.

    An event loop over their sockets and the ends of their steps. `addresses`: tcp://HOST:PORT by the number of the
    drafter. `say`: takes lines for whoever runs them.
    """

    def __init__(
        self,
        fleet: Fleet,
        answers: Callable[[Station], Answers],
        addresses: Mapping[int, str],
        numbers: Sequence[int] | None = None,
        keys: Keys | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.fleet = fleet
        self.answers = answers
        self.say = say
        self.numbers = range(fleet.verifiers.count) if numbers is None else numbers
        life, connect = time.time_ns(), {}
        lines: dict[int, Line] = {}
        for number in self.numbers if fleet.drafters.count else ():
            drafter = fleet.drafter_of(number)
            connect[number] = addresses[drafter]
            name = addresses[drafter].removeprefix("tcp://")
            lines[number] = Line(fleet, number, life, drafter=drafter, port=number, name=name)
        self.exchange = Exchange(lines=lines, line_of=fleet.target_of)
        self.transport = Sockets(connect=connect, most_bytes=most_bytes(fleet, fleet.vocabulary), keys=keys)
        self.targets: dict[int, ReplayedTarget] = {}
        self.log: Log = []
        self.inbox: deque[tuple[Deliver, float, float]] = deque()
        self.waits = CoreWaits(all_threads)
        self.due_s = 0.0
        self.margin = Margin()

    def wait_for_welcomes(self, patience_s: float) -> None:
        """Wait until all are served; InputError if one is turned away, or after `patience_s`."""
        until_s = now_s() + patience_s
        try:
            while any(line.state != "open" for line in self.exchange.lines.values()):
                if now_s() > until_s:
                    names = ", ".join(dict.fromkeys(line.name for line in self.exchange.lines.values()))
                    raise InputError(f"no drafter answered at {names} within {patience_s:g} s")
                self._turn(HELLO_S)
        except BaseException:
            self.transport.close()
            raise

    def serve(self, zero_s: float) -> Log:
        """Decode all requests of all targets; return the stations' log, its times counted from `zero_s`."""
        self.targets = {
            number: ReplayedTarget(self.fleet, number, self.answers, self._post, zero_s, self.log)
            for number in self.numbers
        }
        try:
            while zero_s > now_s():
                self._turn(zero_s - now_s())
            for target in self.targets.values():
                target.next_request()
            while not all(target.finished for target in self.targets.values()):
                self._finish_due()
                self._wait()
            self._carry_out(self.exchange.close(now_s()), now_s())
        finally:
            self.transport.close()
        return self.log

    def _post(self, message: Message, content: Content) -> None:
        time_s = now_s()
        self._carry_out(self.exchange.post(message, content, time_s), time_s)

    def _finish_due(self) -> None:
        time_s = now_s()
        due = [target for target in self.targets.values() if target.running is not None and target.due_s <= time_s]
        for target in sorted(due, key=lambda target: target.due_s):
            target.finish()

    def _turn(self, wait_s: float) -> bool:
        """Take what has arrived, or wait for it; say what is due. Return whether anything has arrived."""
        self.waits.since_last_s()  # what was waited for until now is in the steps
        frames = self.transport.poll(wait_s)
        core_wait_s = self.waits.since_last_s()
        for frame in frames:
            actions = self.exchange.receive(frame.port, frame.peer, frame.frame, frame.time_s)
            self._carry_out(actions, frame.time_s, core_wait_s)
            core_wait_s = 0.0
        time_s = now_s()
        if time_s >= self.due_s:
            self.due_s = time_s + TICK_S
            self._carry_out(self.exchange.tick(time_s), time_s)
            for line in self.transport.tidy(()):
                self.say(line)
        while self.inbox:
            came, time_s, core_wait_s = self.inbox.popleft()
            target = self.targets[self.fleet.target_of(came.event.tag)]
            target.deliver(came.event, came.content, time_s, came.payload_bytes, core_wait_s)
        return bool(frames)

    def _carry_out(self, actions: Sequence[Action], time_s: float, core_wait_s: float = 0.0) -> None:
        for action in carry_out(actions, self.exchange, self.transport, time_s):
            if isinstance(action, Turned):
                raise InputError(action.reason)
            if isinstance(action, Deliver) and not isinstance(action.event, Ping):
                self.inbox.append((action, time_s, core_wait_s))  # it may follow from what a target posts just now

    def _wait(self) -> None:
        """Take what arrives until shortly before the next end of a step, or the next tick."""
        due_s = min((target.due_s for target in self.targets.values() if target.running is not None), default=None)
        before_s = now_s()
        wait_s = TICK_S if due_s is None else min(due_s - before_s - self.margin.s, TICK_S)
        if not self._turn(wait_s) and wait_s > 0:
            self.margin.slept(now_s() - before_s - wait_s)
