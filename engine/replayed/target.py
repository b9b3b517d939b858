"""One replayed target: its station, its users, and the end of its running step. Without sockets and torch."""

import math
from collections.abc import Callable

from engine.net.clock import now_s
from engine.net.content import NOTHING, Content
from engine.node.pending import PendingDrafts, repeats
from engine.node.write_ahead_log import FIRST, Life, note_finished, unfinished
from engine.replayed.answers import ReplayedOutcomes
from fleet.acceptance.sources import sources_of
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import join_of, verifier_station
from fleet.stations.messages import (
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Message,
    Released,
    Restarted,
    StationEvent,
    StepDone,
)
from fleet.stations.station import Start, Station
from fleet.times.durations import verifier_durations
from fleet.times.step import Step


class ReplayedTarget:
    """Target number `target`, its station and its users.

    - `post(message, content, time_s)`: sends a message to its drafter.
    - `join(join, time_s)`: delivers the next request of a user at that time, by the engine's clock.
    - `zero_s`: time zero of the run. `life`: of its process.
    - `running`, `due_s`: its running step, and when that ends.
    """

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        answers: Callable[[Station], ReplayedOutcomes],
        post: Callable[[Message, Content, float], None],
        join: Callable[[Join, float], None],
        zero_s: float,
        log: Log,
        life: Life = FIRST,
    ) -> None:
        self.fleet = fleet
        self.target = target
        self.post = post
        self.join = join
        self.zero_s = zero_s
        self.life = life
        self.recorded = RecordedStation(verifier_station(fleet, target), "replayed", log, life.written)
        self.duration_s = verifier_durations(
            fleet.verifier_times(target),
            fleet.drafters.shape,
            sources_of(fleet.seed).targets.spawn(fleet.verifiers.count)[target],
        )
        own = {tag: requests for tag, requests in streams_of(fleet).items() if fleet.target_of(tag) == target}
        self.requests = {tag: iter(requests) for tag, requests in unfinished(own, life).items()}
        self.answers = answers(self.recorded.station)
        self.pending = PendingDrafts(repeats(fleet))
        self.taken: list[Content] = []  # the drafts that the running step verifies
        self.running: Step | None = None
        self.started_s = self.due_s = 0.0

    @property
    def finished(self) -> bool:
        """Whether all requests of its users are decoded."""
        return not self.requests

    def begin(self) -> None:
        """Send the first unfinished request of each user."""
        if self.life.number:
            self.deliver(Restarted(self.life.number), NOTHING, now_s())
        for tag in list(self.requests):
            self._next_request(tag)

    def alarm_s(self) -> float:
        """Return the next timeout of the station, by the engine's clock; infinite while a step runs."""
        return math.inf if self.running is not None else self.recorded.station.alarm_s() + self.zero_s

    def ring(self, time_s: float) -> None:
        """Deliver the timeouts of the station that are due."""
        if self.recorded.station.alarm_s() + self.zero_s <= time_s:
            for event in self.recorded.station.due(time_s - self.zero_s):
                self.deliver(event, NOTHING, time_s)

    def _next_request(self, tag: int) -> None:
        request = next(self.requests[tag], None)
        if request is None:
            del self.requests[tag]
        else:
            self.join(join_of(self.fleet, tag, request), max(now_s(), self.zero_s + request.not_before_s))

    def deliver(self, event: StationEvent, content: Content, time_s: float, payload_bytes: int = 0) -> None:
        """Deliver an event to the station, carry out its instructions, and start what it plans."""
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes)
        if not any(isinstance(instruction, Ignored) for instruction in instructions):
            self.pending.receive(event, content)
        for instruction in instructions:
            self._post(instruction, time_s)
        if self.recorded.station.ready:
            plan = self.recorded.plan(time_s - self.zero_s)
            if isinstance(plan, Start):
                self.running, self.started_s = plan.step, time_s
                self.taken = [self.pending.take(member.tag) for member in plan.step.members]
                self.due_s = time_s + self.duration_s(plan.step)

    def finish(self) -> None:
        """End the running step."""
        step, self.running = self.running, None
        assert step is not None
        outcomes = self.answers.outcomes(step, self.taken)
        ended_s = now_s()
        self.deliver(StepDone(step.number, outcomes, ended_s - self.started_s), NOTHING, ended_s)

    def _post(self, instruction: Instruction, time_s: float) -> None:
        match instruction:
            case DraftRequest():
                self.post(instruction, self.content_of(instruction), time_s)
            case Leave():
                self.post(instruction, NOTHING, time_s)
            case Finished():
                note_finished(self.recorded.log, instruction.request)
                self._next_request(instruction.tag)
            case _:
                assert isinstance(instruction, Released | Ignored), instruction

    def content_of(self, request: DraftRequest) -> Content:
        """Return the content of a request; it repeats earlier tokens if an earlier request may be lost."""
        count = self.pending.tokens_sent(request)
        content = self.answers.content_of(request)
        return Content([0] * count) if count > len(content.tokens) else content
