"""Replayed targets: many in one light process without a model, for other hardware than this machine's.

Their prefill servers are in the same process: a prompt's KV cache has no bytes here, and arrives when the stated link
would have brought it.

A verification takes the time that the scenario gives for such a target. Transport and queueing are real. Acceptance is
drawn as in the simulation; with a real drafter it is real too: its tokens are compared with recorded text.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

import msgspec
import numpy as np

from specfleet.engine.decoding.greedy import path_in_text
from specfleet.engine.net.actions import HELLO_S, Action, Deliver, Lost, Rejected
from specfleet.engine.net.clock import Margin, now_s
from specfleet.engine.net.content import NOTHING, Content, path_sent
from specfleet.engine.net.socket_thread import TICK_S, RateLimitedLog, wait_for_welcomes
from specfleet.engine.node.node import HERE, Site, Stations, clients_of_drafters
from specfleet.engine.node.pending import PendingDrafts, repeats
from specfleet.engine.node.worker import READ_S, STILL_S
from specfleet.engine.node.write_ahead_log import note_finished, open_log, unfinished
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import Log, RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.build import (
    handed_over,
    join_of,
    kv_bytes,
    prefill_of,
    prefill_station,
    verifier_station,
)
from specfleet.fleet.stations.messages import (
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
from specfleet.fleet.stations.outcomes import Outcomes
from specfleet.fleet.stations.prefill import KvLink
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.times.durations import LocalDraftTimes, verifier_durations
from specfleet.fleet.times.step import Member, Step


class Continuation(msgspec.Struct, frozen=True):
    """The target's greedy continuation of a prompt, as token ids; one round longer than the longest request.

    `hidden` (prompt + tokens - 1, hidden): the target's last hidden states at all tokens but the last, prompt included,
    as float16; None unless a drafter reads them.
    """

    prompt: list[int]
    tokens: list[int]
    hidden: np.ndarray | None = None


class Continued:
    """Compares real drafts with the continuations of the prompts."""

    def __init__(self, continuations: Sequence[Continuation]) -> None:
        self.continuations = continuations
        self.paths: dict[int, list[int]] = {}  # accepted nodes of the last drafts, by tag
        self.sent: dict[int, int] = {}  # tokens of the texts that drafters know, by tag

    def outcomes(self, step: Step, drafts: Sequence[Content]) -> tuple[Outcome, ...]:
        """Compare drafts with continuations."""
        return tuple([self._outcome(step, *pair) for pair in zip(step.members, drafts, strict=True)])

    def _outcome(self, step: Step, member: Member, draft: Content) -> Outcome:
        continuation = self.continuations[member.request]
        if step.kind_of(member) != "verify":
            self.paths.pop(member.tag, None)
            return Outcome()
        position = member.base - len(continuation.prompt)
        path = path_in_text(draft.tokens, continuation.tokens[position:], draft.nodes)[: member.tokens]
        self.paths[member.tag] = path
        return Outcome(len(path))

    def content_of(self, request: DraftRequest) -> Content:
        """Return the prefix of an opening request, the target's own token of a later one."""
        continuation, base = self.continuations[request.request], request.base
        text = [*continuation.prompt, *continuation.tokens][:base]
        path, known = self.paths.pop(request.tag, []), 0 if request.opening else self.sent[request.tag]
        self.sent[request.tag] = base
        # of each new token, the state before it
        hidden = None if continuation.hidden is None else continuation.hidden[max(known - 1, 0) : base - 1]
        if request.opening:
            return Content(text, hidden=hidden)
        return Content(text[known + len(path) :], path_sent(path), hidden=hidden)


class Drawn:
    """Draws outcomes for replayed drafters, with the code and the random numbers of the simulation.

    Texts are zeros of the right length.

    - `outcomes`: of the whole fleet; targets of one process may share them.
    - `outruns`: whether a text may go on before its draft has arrived; then a request has all tokens since the last.
    """

    def __init__(self, outcomes: Outcomes, outruns: bool, station: Station) -> None:
        self.draw: Callable[[Step], tuple[Outcome, ...]] = outcomes.at(station)
        self.outruns = outruns
        self.sent: dict[int, int] = {}  # tokens of the texts that drafters know, by tag

    def outcomes(self, step: Step, drafts: Sequence[Content]) -> tuple[Outcome, ...]:
        """Draw outcomes; the content of drafts is not used."""
        return self.draw(step)

    def content_of(self, request: DraftRequest) -> Content:
        """Return a prefix, or what is new, of zeros."""
        known = 0 if request.opening else self.sent[request.tag]
        self.sent[request.tag] = request.base
        return Content([0] * (request.base - known if request.opening or self.outruns else 1))


ReplayedOutcomes = Continued | Drawn
"""Returns the outcomes of one target's finished steps, one a member, and the content of its requests."""


class ReplayedTarget:
    """Target number `target` of a process, its station and its users; prefill servers get their requests first, if any.

    - `zero_s`: time zero of the run.
    - `rng`: the source of its times. `station`: of a prefill server, which is like the first target.
    - `running`, `due_s`: its running step, and when that ends.
    - `open`: the last request of each user, by tag.
    """

    def __init__(
        self,
        home: "ReplayedFleet",
        target: int,
        zero_s: float,
        rng: np.random.Generator,
        station: Station | None = None,
    ) -> None:
        fleet, station = home.fleet, station or verifier_station(home.fleet, target)
        self.home = home
        self.zero_s = zero_s
        self.recorded = RecordedStation(station, "replayed", home.log, home.life.written)
        drafts = None
        if fleet.verifiers.drafts is not None:
            drafts = LocalDraftTimes(fleet.drafter_times(0), home.outcomes.drafting(station))
        self.duration_s = verifier_durations(fleet.verifier_times(target), fleet.drafters.shape, rng, drafts)
        served = {tag: requests for tag, requests in streams_of(fleet).items() if fleet.target_of(tag) == target}
        self.requests = {tag: iter(requests) for tag, requests in unfinished(served, home.life).items()}
        self.open: dict[int, Request] = {}
        self.answers = home.answers(station)
        self.pending = PendingDrafts(repeats(fleet))
        self.taken: list[Content] = []  # the drafts that the running step verifies
        self.running: Step | None = None
        self.started_s = self.due_s = 0.0

    def begin(self) -> None:
        """Send the first unfinished request of each user."""
        if self.home.life.number:
            self.deliver(Restarted(self.home.life.number), NOTHING, now_s())
        for tag in list(self.requests):
            self._next_request(tag)

    @property
    def goes(self) -> bool:
        """Whether it has a running step, or requests and time for more."""
        return self.running is not None or (bool(self.requests) and not self.home.stopping)

    def next_s(self) -> float:
        """Return the end of its running step, else the next timeout of its station, by the engine's clock."""
        return self.due_s if self.running is not None else self.recorded.station.alarm_s() + self.zero_s

    def ring(self, time_s: float) -> None:
        """Deliver the timeouts of the station that are due."""
        if self.recorded.station.alarm_s() + self.zero_s <= time_s:
            for event in self.recorded.station.due(time_s - self.zero_s):
                self.deliver(event, NOTHING, time_s)

    def _next_request(self, tag: int, after_s: float = 0.0) -> None:
        request = next(self.requests[tag], None)
        if request is None:
            del self.requests[tag]
        else:
            opens_s = max(now_s() + after_s + request.think_s, self.zero_s + request.not_before_s)
            self.open[tag] = request
            self.home.deliver_later(Deliver(join_of(self.home.fleet, tag, request)), opens_s)

    def receive(self, action: Deliver, time_s: float) -> None:
        """Take what has arrived: a user's request goes to its prefill server, if any, and comes back as computed."""
        fleet, event = self.home.fleet, action.event
        if isinstance(event, Join) and event.computed:
            self.home.outcomes.begin(event.tag, event.request, event.computed)
        elif isinstance(event, Join) and fleet.verifiers.prefill:
            self.home.prefills[prefill_of(fleet, event.tag)].deliver(event, NOTHING, time_s)
            return
        self.deliver(event, action.content, time_s, action.payload_bytes)

    def deliver(self, event: StationEvent, content: Content, time_s: float, payload_bytes: int = 0) -> None:
        """Deliver an event to the station, carry out its instructions, and start what it plans."""
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes)
        if not any(isinstance(instruction, Ignored) for instruction in instructions):
            self.pending.receive(event, content)
        for instruction in instructions:
            self.post(instruction, time_s)
        if self.recorded.station.ready and not self.home.stopping:
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

    def post(self, instruction: Instruction, time_s: float) -> None:
        """Carry out an instruction of the station."""
        match instruction:
            case DraftRequest():
                self.home.post(instruction, self.content_of(instruction), time_s)
            case Leave():
                self.home.post(instruction, NOTHING, time_s)
            case Finished():
                note_finished(self.recorded.log, instruction.request)
                self._next_request(instruction.tag, self.home.fleet.request_s)
            case _:
                assert isinstance(instruction, Released | Ignored), instruction

    def content_of(self, request: DraftRequest) -> Content:
        """Return the content of a request; it repeats earlier tokens if an earlier request may be lost."""
        count = self.pending.tokens_sent(request)
        if request.opening or self.home.fleet.in_turn:
            self.pending.take(request.tag)  # a draft that came for a lost cache
        content = self.answers.content_of(request)
        return Content([0] * count) if count > len(content.tokens) else content


class ReplayedPrefill(ReplayedTarget):
    """Prefill server `number` of a process, from 0, and its link."""

    def __init__(self, home: "ReplayedFleet", number: int, zero_s: float, rng: np.random.Generator) -> None:
        station, prefill = prefill_station(home.fleet, number), home.fleet.verifiers.prefill
        assert prefill is not None
        self.link, self.computing_s = KvLink(prefill, rng.spawn(1)[0]), station.computing_s
        super().__init__(home, 0, zero_s, rng, station)
        self.requests = {}  # they are its targets'

    def post(self, instruction: Instruction, time_s: float) -> None:
        """Hand a complete prompt over: it arrives with its KV cache, unless its first token was all."""
        if not isinstance(instruction, Finished):
            return
        fleet, tag = self.home.fleet, instruction.tag
        target, computing_s = self.home.targets[fleet.target_of(tag)], self.computing_s.pop(tag)
        request = target.open[tag]
        if request.new_tokens == 1:
            target.post(instruction, time_s)
            return
        size = kv_bytes(fleet, request)
        arrival = Deliver(handed_over(fleet, tag, request), payload_bytes=size)
        self.home.deliver_later(arrival, time_s + self.link.way_s(size, time_s, computing_s))


class ReplayedFleet(Stations):
    """Replayed targets of a fleet (all, or the given numbers) in one thread, with clients of their own.

    An event loop over their sockets and the ends of their steps.

    - `addresses`: see `clients_of_drafters`.
    - `continuations`: of all requests, for real drafters.
    """

    def __init__(
        self,
        fleet: Fleet,
        addresses: Mapping[int, str],
        numbers: Sequence[int] | None = None,
        continuations: Sequence[Continuation] = (),
        site: Site = HERE,
    ) -> None:
        super().__init__(fleet)
        self.life = life = site.life
        life.wait_until_back()
        self.answers: Callable[[Station], ReplayedOutcomes] = lambda _station: Continued(continuations)
        if fleet.drafters.kind == "replayed":
            self.outcomes = Outcomes(fleet)
            self.answers = partial(Drawn, self.outcomes, fleet.verifiers.outruns_drafts)
        self.say = site.say
        self.numbers = range(fleet.verifiers.count) if numbers is None else numbers
        self.connections, self.sockets = clients_of_drafters(fleet, self.numbers, addresses, site)
        self.sockets.log = site.say
        self.losses = RateLimitedLog(site.say, now_s())
        self.targets: dict[int, ReplayedTarget] = {}
        self.prefills: list[ReplayedTarget] = []
        self.log = open_log(life)
        self.inbox: deque[tuple[Deliver, float]] = deque()
        self.later: list[tuple[float, int, Deliver]] = []  # a heap of events by their time
        self.order = count()
        self.due_s = 0.0
        self.margin = Margin()
        self.stopping = False

    def stop(self) -> None:
        """End after the running steps."""
        self.stopping = True

    def wait_for_welcomes(self, patience_s: float) -> None:
        """Wait until all clients are welcomed; else close the sockets."""
        try:
            wait_for_welcomes(self.connections, patience_s, self.say, lambda wait_s: self._turn(min(wait_s, HELLO_S)))
        except BaseException:
            self.sockets.close()
            raise

    def serve(self, zero_s: float) -> Log:
        """Decode all requests of all targets; after `stop` end the running steps and begin none."""
        verifiers = self.fleet.verifiers
        sources = sources_of(self.fleet.seed).targets.spawn(verifiers.servers)
        self.targets = {number: ReplayedTarget(self, number, zero_s, sources[number]) for number in self.numbers}
        of_prefills = enumerate(sources[verifiers.count :])
        self.prefills = [ReplayedPrefill(self, number, zero_s, source) for number, source in of_prefills]
        try:
            while zero_s > now_s():
                self._turn(zero_s - now_s())
            for target in self.targets.values():
                target.begin()
            while any(target.goes for target in self._servers()):
                self._finish_due()
                self._wait()
            self._carry_out(self.connections.close(now_s()), now_s())
        finally:
            self.sockets.close()
        return self.log

    def stations(self) -> list[RecordedStation]:
        """Return the stations, which share a log."""
        return [target.recorded for target in self._servers()]

    def _servers(self) -> list[ReplayedTarget]:
        return [*self.targets.values(), *self.prefills]

    def post(self, message: Message, content: Content, left_s: float) -> None:
        """Send a message of a target that left its station at `left_s`."""
        time_s = now_s()
        self._carry_out(self.connections.post(message, content, time_s, left_s), time_s)

    def _finish_due(self) -> None:
        time_s = now_s()
        for target in self._servers():
            target.ring(time_s)
        due = [target for target in self._servers() if target.running is not None and target.due_s <= time_s]
        for target in sorted(due, key=lambda target: target.due_s):
            self._turn(0.0)  # events before the end of a step go first
            target.finish()
        self._hand_over()

    def _turn(self, wait_s: float) -> bool:
        """Receive frames, or wait for one; send what is due. Return whether any has arrived."""
        frames = self.sockets.poll(wait_s)
        for frame in frames:
            self._carry_out(self.connections.receive(frame.port, frame.peer, frame.frame, frame.time_s), frame.time_s)
        time_s = now_s()
        if time_s >= self.due_s:
            self.due_s = time_s + TICK_S
            self._carry_out(self.connections.tick(time_s), time_s)
            self.sockets.tidy()
        self._hand_over()
        return bool(frames)

    def _hand_over(self) -> None:
        """Deliver all events that are due."""
        while self.inbox or (self.later and self.later[0][0] <= now_s()):
            if self.inbox:
                action, time_s = self.inbox.popleft()
            else:
                time_s, _, action = heapq.heappop(self.later)
            self.targets[self.fleet.target_of(action.event.tag)].receive(action, time_s)

    def _carry_out(self, actions: Sequence[Action], time_s: float) -> None:
        for action in self.connections.carry_out(actions, self.sockets, time_s):
            if isinstance(action, Lost):
                self.losses.log(action.reason, now_s())
            if isinstance(action, Rejected):
                raise InputError(action.reason)
            if not isinstance(action, Deliver):
                continue
            if action.after_s:
                self.deliver_later(action, time_s + action.after_s)
            else:  # not at once: a target may be posting now
                self.inbox.append((action, time_s))

    def deliver_later(self, action: Deliver, time_s: float) -> None:
        """Deliver an event to its target at that time, by the engine's clock."""
        heapq.heappush(self.later, (time_s, next(self.order), action))

    def _wait(self) -> None:
        """Receive frames until shortly before the next event or tick."""
        dues_s = [target.next_s() for target in self._servers()]
        due_s = min(dues_s + [time_s for time_s, _, _ in self.later[:1]])
        before_s = now_s()
        wait_s = min(due_s - before_s - self.margin.s, TICK_S)
        if not self._turn(wait_s) and wait_s > 0:
            late_s = now_s() - before_s - wait_s
            self.margin.slept(late_s)
            if late_s > STILL_S:  # this process was stopped: earlier frames go first
                self._turn(READ_S)
