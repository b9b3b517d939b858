"""Replayed targets: many of them in one light process without a model, for hardware that this machine does not have.

Each prompt's continuation is decoded once beforehand. A verification compares the real draft with it and takes the
time that the scenario states for such a target. Drafting, transport, queueing and acceptance stay real.
"""

import select
import time
from collections.abc import Callable, Sequence

import zmq

from engine.runtime.answers import Answers
from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content
from engine.runtime.transport import Channel, Ping, connect, parse, size_of
from fleet.chance.sources import sources_of
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
    Released,
    StationEvent,
    StepDone,
)
from fleet.stations.station import Start, Station
from fleet.times.durations import verifier_durations
from fleet.times.step import Step

SPIN_S = 100e-6  # a sleep may end this much too late, so the last bit of a wait is spent looking at the clock


class ReplayedTarget:
    """Target number `target`: its station, its user, its channel; `due` holds its running step and when it ends."""

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        answers: Callable[[Station], Answers],
        channel: Channel | None,
        zero_s: float,
        log: Log,
    ) -> None:
        self.fleet = fleet
        self.target = target
        self.channel = channel
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

    def deliver(self, event: StationEvent, content: Content, time_s: float, payload_bytes: int = 0) -> None:
        """Hand an event to the station, carry out its instructions, and start what it plans."""
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes)
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
                assert self.channel is not None
                self.channel.send(instruction, self.answers.content_of(instruction))
            case Leave():
                assert self.channel is not None
                self.channel.send(instruction, NOTHING)
            case Finished():
                self.next_request()
            case _:
                assert isinstance(instruction, Released | Ignored), instruction


class ReplayedFleet:
    """Replayed targets of a fleet (all, or the given numbers) in one thread.

    An event loop over their sockets and the ends of their steps.
    """

    def __init__(
        self,
        fleet: Fleet,
        answers: Callable[[Station], Answers],
        drafter_port: int,
        address: str = "tcp://127.0.0.1",
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.fleet = fleet
        self.answers = answers
        self.numbers = range(fleet.verifiers.count) if numbers is None else numbers
        self.context = zmq.Context()
        self.channels = {
            number: connect(self.context, address, drafter_port, number)
            for number in self.numbers
            if fleet.drafters.count
        }
        self.targets: dict[int, ReplayedTarget] = {}
        self.log: Log = []

    def serve(self, zero_s: float) -> Log:
        """Decode all requests of all targets; return the stations' log, its times counted from `zero_s`."""
        self.targets = {
            number: ReplayedTarget(self.fleet, number, self.answers, self.channels.get(number), zero_s, self.log)
            for number in self.numbers
        }
        time.sleep(max(0.0, zero_s - now_s()))
        for target in self.targets.values():
            target.next_request()
        while not all(target.finished for target in self.targets.values()):
            if not (self._finish_due() or self._receive()):
                self._sleep()
        self.context.destroy()
        return self.log

    def _finish_due(self) -> bool:
        time_s = now_s()
        due = [target for target in self.targets.values() if target.running is not None and target.due_s <= time_s]
        for target in sorted(due, key=lambda target: target.due_s):
            target.finish()
        return bool(due)

    def _receive(self) -> bool:
        """Take everything that waits in any socket; return whether there was anything."""
        received = False
        for number, channel in self.channels.items():
            while channel.receiving.get(zmq.EVENTS) & zmq.POLLIN:
                time_s = now_s()
                frames = channel.receiving.recv_multipart()
                message, content = parse(frames)
                if not isinstance(message, Ping):
                    self.targets[number].deliver(message, content, time_s, size_of(frames))
                received = True
        return received

    def _sleep(self) -> None:
        """Wait for a message or for the next end of a step, whichever comes first.

        ZeroMQ's poll counts in milliseconds, too coarse here; its file descriptors signal new messages, and all old
        ones have just been taken.
        """
        left_s = min((target.due_s for target in self.targets.values() if target.running is not None), default=None)
        timeout_s = None if left_s is None else left_s - now_s() - SPIN_S
        if timeout_s is None or timeout_s > 0:
            descriptors = [channel.receiving.get(zmq.FD) for channel in self.channels.values()]
            select.select(descriptors, [], [], timeout_s)
