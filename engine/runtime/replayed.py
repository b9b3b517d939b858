"""Replayed targets: many of them in one light process without a model, for hardware that this machine does not have.

Each prompt's continuation is decoded once beforehand. A verification compares the real draft with it and takes the
time that the scenario states for such a target. Drafting, transport, queueing and acceptance stay real.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from engine.decoding.greedy import path_in_text
from engine.runtime.actions import HELLO_S, Action, Deliver, Turned
from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content, path_sent
from engine.runtime.core_waits import CoreWaits, all_threads
from engine.runtime.exchange import Exchange
from engine.runtime.identity import Ping
from engine.runtime.limits import most_bytes
from engine.runtime.line import Line
from engine.runtime.socket_thread import TICK_S
from engine.runtime.sockets import Sockets
from engine.runtime.transport import carry_out
from fleet.errors import InputError
from fleet.policies.outcome import Outcome
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
from fleet.stations.station import Start
from fleet.times.durations import verifier_durations
from fleet.times.step import Step

SPIN_S = 100e-6  # a sleep may end this much too late, so the last bit of a wait is spent looking at the clock


class Continuation(msgspec.Struct, frozen=True):
    """The target's greedy continuation of a prompt, as token ids; longer than any request asks for, by one round.

    `hidden` (prompt + tokens - 1, hidden): the target's last hidden states at all tokens but the last, prompt included,
    as float16; None where no drafter reads them. `ends_after`: how many tokens the
    text has when it ends by itself; 0 where it does not.
    """

    prompt: list[int]
    tokens: list[int]
    hidden: np.ndarray | None = None
    ends_after: int = 0


class ReplayedTarget:
    """Target number `target`: its station, its user; `due_s` holds its running step and when it ends."""

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        continuations: Sequence[Continuation],
        post: Callable[[Message, Content], None],
        zero_s: float,
        log: Log,
    ) -> None:
        self.fleet = fleet
        self.target = target
        self.continuations = continuations
        self.post = post
        self.zero_s = zero_s
        self.recorded = RecordedStation(verifier_station(fleet, target), "replayed", log)
        self.duration_s = verifier_durations(
            fleet.verifier_times(target),
            fleet.drafters.shape,
            fleet.verifiers.padded,
            np.random.default_rng([fleet.seed, target]),
        )
        self.requests = requests_of(fleet, target)
        self.draft = NOTHING
        self.path: list[int] = []  # accepted nodes of the last draft
        self.finished = False
        self.running: Step | None = None
        self.started_s = self.due_s = 0.0

    def next_request(self) -> None:
        """Let the user send the next request, if any is left."""
        request = next(self.requests, None)
        if request is None:
            self.finished = True
        else:
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
        """End the running step: compare the draft with the continuation."""
        step, self.running = self.running, None
        assert step is not None
        member = step.members[0]
        continuation, accepted = self.continuations[member.request], 0
        position = (member.base or member.tokens) - len(continuation.prompt)  # a prefill's tokens are the prompt
        if step.kind == "verify":
            self.path = path_in_text(self.draft.tokens, continuation.tokens[position:], self.draft.nodes)
            accepted = len(self.path)
        left = continuation.ends_after - position
        outcome = Outcome(accepted, left if 0 < left <= accepted + 1 else 0)
        ended_s = now_s()
        self.deliver(StepDone(step.number, (outcome,), ended_s - self.started_s), NOTHING, ended_s)

    def content_of(self, request: DraftRequest) -> Content:
        """Return what is sent to the drafter: the prefix at first, later the target's own token."""
        continuation, base = self.continuations[request.request], request.base
        text = [*continuation.prompt, *continuation.tokens][:base]
        known = 1 if request.opening else base - len(self.path) - 1  # of each token known, the state before the next
        hidden = None if continuation.hidden is None else continuation.hidden[known - 1 : base - 1]
        if request.opening:
            return Content(text, hidden=hidden)
        return Content(text[-1:], path_sent(self.path), hidden=hidden)

    def _post(self, instruction: Instruction) -> None:
        match instruction:
            case DraftRequest():
                self.post(instruction, self.content_of(instruction))
            case Leave():
                self.post(instruction, NOTHING)
            case Finished():
                self.next_request()
            case _:
                assert isinstance(instruction, Released | Ignored), instruction


class ReplayedFleet:
    """Replayed targets of a fleet (all, or the given numbers) in one thread, each with a line of its own.

    An event loop over their sockets and the ends of their steps. `addresses`: tcp://HOST:PORT by the number of the
    drafter.
    """

    def __init__(
        self,
        fleet: Fleet,
        continuations: Sequence[Continuation],
        addresses: Mapping[int, str],
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.fleet = fleet
        self.continuations = continuations
        self.numbers = range(fleet.verifiers.count) if numbers is None else numbers
        life, connect = time.time_ns(), {}
        lines: dict[int, Line] = {}
        for number in self.numbers if fleet.drafters.count else ():
            drafter = fleet.drafter_of(number)
            connect[number] = addresses[drafter]
            name = addresses[drafter].removeprefix("tcp://")
            lines[number] = Line(fleet, number, life, drafter=drafter, port=number, name=name)
        self.exchange = Exchange(lines=lines, line_of=fleet.target_of)
        self.transport = Sockets(connect=connect, most_bytes=most_bytes(fleet))
        self.targets: dict[int, ReplayedTarget] = {}
        self.log: Log = []
        self.inbox: deque[tuple[Deliver, float, float]] = deque()
        self.waits = CoreWaits(all_threads)
        self.due_s = 0.0

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
            number: ReplayedTarget(self.fleet, number, self.continuations, self._post, zero_s, self.log)
            for number in self.numbers
        }
        try:
            while zero_s > now_s():
                self._turn(zero_s - now_s())
            for target in self.targets.values():
                target.next_request()
            while not all(target.finished for target in self.targets.values()):
                self._finish_due()
                self._turn(self._wait_s())
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

    def _turn(self, wait_s: float) -> None:
        """Take what has arrived, or wait for it; say what is due."""
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
        while self.inbox:
            came, time_s, core_wait_s = self.inbox.popleft()
            target = self.targets[self.fleet.target_of(came.event.tag)]
            target.deliver(came.event, came.content, time_s, came.payload_bytes, core_wait_s)

    def _carry_out(self, actions: Sequence[Action], time_s: float, core_wait_s: float = 0.0) -> None:
        for action in carry_out(actions, self.exchange, self.transport, time_s):
            if isinstance(action, Turned):
                raise InputError(action.reason)
            if isinstance(action, Deliver) and not isinstance(action.event, Ping):
                self.inbox.append((action, time_s, core_wait_s))  # it may follow from what a target posts just now

    def _wait_s(self) -> float:
        """How long nothing is due: until the next end of a step, or the next tick."""
        due_s = min((target.due_s for target in self.targets.values() if target.running is not None), default=None)
        return TICK_S if due_s is None else min(due_s - now_s() - SPIN_S, TICK_S)
