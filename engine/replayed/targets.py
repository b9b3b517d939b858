"""Replayed targets: many in one light process without a model, for other hardware than this machine's.

Their prefill servers are in the same process: a prompt's KV cache has no bytes here, and arrives when the stated link
would have brought it.

A verification takes the time that the scenario gives for such a target. Transport and queueing are real. Acceptance is
drawn as in the simulation; with a real drafter it is real too: its tokens are compared with recorded text.
"""

import heapq
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

import msgspec
import numpy as np

from specfleet.engine.decoding.greedy import path_in_text
from specfleet.engine.net.actions import Deliver
from specfleet.engine.net.clock import Margin, now_s
from specfleet.engine.net.content import NOTHING, Content, path_sent
from specfleet.engine.net.socket_thread import SocketThread
from specfleet.engine.node.node import HERE, Node, Site, Stations, clients_of_drafters
from specfleet.engine.node.pending import PendingDrafts, repeats
from specfleet.engine.node.worker import READ_S, STILL_S, Executor, Item, Stop
from specfleet.engine.node.write_ahead_log import open_log, unfinished
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import Log, RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations import build, messages
from specfleet.fleet.stations.outcomes import Outcomes
from specfleet.fleet.stations.prefill import KvLink, PrefillStation
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.times.durations import LocalDraftTimes, verifier_durations
from specfleet.fleet.times.step import Member, Step

LONGEST_WAIT_S = 1.0  # for what may never come


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

    def content_of(self, request: messages.DraftRequest) -> Content:
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

    def content_of(self, request: messages.DraftRequest) -> Content:
        """Return a prefix, or what is new, of zeros."""
        known = 0 if request.opening else self.sent[request.tag]
        self.sent[request.tag] = request.base
        return Content([0] * (request.base - known if request.opening or self.outruns else 1))


ReplayedOutcomes = Continued | Drawn
"""Returns the outcomes of one target's finished steps, one a member, and the content of its requests."""


class ReplayedExecutor(Executor):
    """Keeps the drafts of a target until a step takes them, and what its requests contain.

    - `taken`: the drafts that the running step verifies.
    """

    def __init__(self, fleet: Fleet, answers: ReplayedOutcomes) -> None:
        self.in_turn = fleet.in_turn
        self.answers = answers
        self.pending = PendingDrafts(repeats(fleet))
        self.taken: list[Content] = []

    def receive(self, event: messages.StationEvent, content: Content) -> None:
        """Take drafts."""
        self.pending.receive(event, content)

    def begin(self, step: Step) -> None:
        """Take the drafts of a step that begins."""
        self.taken = [self.pending.take(member.tag) for member in step.members]

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Return the outcomes of a step that ends."""
        return self.answers.outcomes(step, self.taken)

    def content_of(self, message: messages.Message) -> Content:
        """Return the content of a request; it repeats earlier tokens if an earlier request may be lost."""
        if not isinstance(message, messages.DraftRequest):
            return NOTHING
        tokens = self.pending.tokens_sent(message)
        if message.opening or self.in_turn:
            self.pending.take(message.tag)  # a draft that came for a lost cache
        content = self.answers.content_of(message)
        return Content([0] * tokens) if tokens > len(content.tokens) else content


class ReplayedTarget(Node):
    """Target number `target` of a process, its station and its users; prefill servers get their requests first, if any.

    - `zero_s`: time zero of the run.
    - `rng`: the source of its times. `station`: of a prefill server, which is like the first target.
    - `running`, `due_s`: its running step, and when that ends.
    """

    def __init__(
        self,
        home: "ReplayedFleet",
        target: int,
        zero_s: float,
        rng: np.random.Generator,
        station: PrefillStation | None = None,
    ) -> None:
        fleet, served = home.fleet, dict[int, list[Request]]()
        if station is None:
            served = {tag: requests for tag, requests in streams_of(fleet).items() if fleet.target_of(tag) == target}
        of_target = station or build.verifier_station(fleet, target)
        drafts = None
        if fleet.verifiers.drafts is not None:
            drafts = LocalDraftTimes(fleet.drafter_times(0), home.outcomes.drafting(of_target))
        self.duration_s = verifier_durations(fleet.verifier_times(target), fleet.drafters.shape, rng, drafts)
        self.executor = ReplayedExecutor(fleet, home.answers(of_target))
        recorded = RecordedStation(of_target, "replayed", home.log, home.life.written)
        super().__init__(fleet, recorded, self.executor, requests=unfinished(served, home.life))
        self.home, self.socket_thread = home, home.socket_thread
        self.put, self.worker.zero_s = home.put, zero_s
        self.running: Step | None = None
        self.started_s = self.due_s = 0.0

    def begin(self) -> None:
        """Send the first unfinished request of each user."""
        if self.home.life.number:
            self.deliver(messages.Restarted(self.home.life.number), NOTHING, now_s())
        for tag in list(self.requests):
            self.next_request(tag)

    @property
    def goes(self) -> bool:
        """Whether it has a running step, or requests and time for more."""
        return self.running is not None or (bool(self.requests) and not self.home.stopping)

    def next_s(self) -> float:
        """Return the end of its running step, else the next timeout of its station, by the engine's clock."""
        return self.due_s if self.running is not None else self.worker.alarm_s()

    def ring(self, time_s: float) -> None:
        """Deliver the timeouts of the station that are due."""
        if self.worker.alarm_s() <= time_s:
            for event in self.worker.station.due(time_s - self.worker.zero_s):
                self.deliver(event, NOTHING, time_s)

    def receive(self, action: Deliver, time_s: float) -> None:
        """Take what has arrived: a user's request goes to its prefill server, if any, and comes back as computed."""
        event = action.event
        if isinstance(event, messages.Join) and event.computed:
            self.home.outcomes.begin(event.tag, event.request, event.computed)
        elif isinstance(event, messages.Join) and self.home.prefills:
            self.home.prefills[build.prefill_of(self.fleet, event.tag)].deliver(event, NOTHING, time_s)
            return
        self.deliver(event, action.content, time_s, action.payload_bytes)

    def deliver(self, event: messages.StationEvent, content: Content, time_s: float, payload_bytes: int = 0) -> None:
        """Deliver an event to the station, carry out its instructions, and start what it plans."""
        self.worker.handle(event, content, time_s, payload_bytes)
        if self.worker.station.ready and not self.home.stopping:
            plan = self.worker.recorded.plan(time_s - self.worker.zero_s)
            if isinstance(plan, Start):
                self.executor.begin(plan.step)
                self.running, self.started_s = plan.step, time_s
                self.due_s = time_s + self.duration_s(plan.step)

    def finish(self) -> None:
        """End the running step."""
        step, self.running = self.running, None
        assert step is not None
        outcomes = self.executor.run(step)
        ended_s = now_s()
        self.deliver(messages.StepDone(step.number, outcomes, ended_s - self.started_s), NOTHING, ended_s)


class ReplayedPrefill(ReplayedTarget):
    """Prefill server `number` of a process, from 0, and its link."""

    def __init__(self, home: "ReplayedFleet", number: int, zero_s: float, rng: np.random.Generator) -> None:
        station, prefill = build.prefill_station(home.fleet, number), home.fleet.verifiers.prefill
        assert prefill is not None
        self.link, self.computing_s = KvLink(prefill, rng.spawn(1)[0]), station.computing_s
        super().__init__(home, 0, zero_s, rng, station)
        streams = streams_of(home.fleet)
        self.asked = {(tag, request.number): request for tag, requests in streams.items() for request in requests}

    def post(self, instruction: messages.Instruction, content: Content) -> None:
        """Hand a complete prompt over: it arrives with its KV cache, unless its first token was all."""
        if not isinstance(instruction, messages.Finished):
            return
        tag, time_s, computing_s = instruction.tag, self.worker.event_s, self.computing_s.pop(instruction.tag)
        request = self.asked[tag, instruction.request]
        if request.new_tokens == 1:
            self.home.targets[self.fleet.target_of(tag)].post(instruction, content)
            return
        size = build.kv_bytes(self.fleet, request)
        arrives_s = time_s + self.link.way_s(size, time_s, computing_s)
        self.home.put((arrives_s, Deliver(build.handed_over(self.fleet, tag, request), payload_bytes=size)))


class ReplayedFleet(Stations):
    """Replayed targets of a fleet (all, or the given numbers) in one thread, with clients of their own.

    An event loop over what arrives and the ends of their steps.

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
        self.numbers = range(fleet.verifiers.count) if numbers is None else numbers
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()  # from the thread of the sockets
        connected = clients_of_drafters(fleet, self.numbers, addresses, site)
        self.socket_thread = SocketThread(*connected, self.inbox.put, self.stop, site.say)
        self.targets: dict[int, ReplayedTarget] = {}
        self.prefills: list[ReplayedTarget] = []
        self.log = open_log(life)
        self.later: list[tuple[float, int, Deliver]] = []  # a heap of events by their time
        self.order = count()
        self.margin = Margin()
        self.stopping = False

    def stop(self) -> None:
        """End after the running steps."""
        self.stopping = True
        self.inbox.put(Stop())

    def serve(self, zero_s: float) -> Log:
        """Decode all requests of all targets; after `stop` end the running steps and begin none."""
        verifiers = self.fleet.verifiers
        sources = sources_of(self.fleet.seed).targets.spawn(verifiers.servers)
        self.targets = {number: ReplayedTarget(self, number, zero_s, sources[number]) for number in self.numbers}
        of_prefills = enumerate(sources[verifiers.count :])
        self.prefills = [ReplayedPrefill(self, number, zero_s, source) for number, source in of_prefills]
        time.sleep(max(0.0, zero_s - now_s()))
        try:
            for target in self.targets.values():
                target.begin()
            while any(target.goes for target in self._servers()):
                self._finish_due()
                self._wait()
        finally:
            self.close()
        return self.log

    def stations(self) -> list[RecordedStation]:
        """Return the stations, which share a log."""
        return [target.worker.recorded for target in self._servers()]

    def _servers(self) -> list[ReplayedTarget]:
        return [*self.targets.values(), *self.prefills]

    def put(self, item: Item) -> None:
        """Deliver an event to its target at its time, by the engine's clock; a target's end by itself ends no other."""
        if not isinstance(item, Stop):
            heapq.heappush(self.later, (item[0], next(self.order), item[1]))

    def _finish_due(self) -> None:
        time_s = now_s()
        for target in self._servers():
            target.ring(time_s)
        due = [target for target in self._servers() if target.running is not None and target.due_s <= time_s]
        for target in sorted(due, key=lambda target: target.due_s):
            self._take(0.0)  # events before the end of a step go first
            target.finish()
        self._hand_over()

    def _take(self, wait_s: float) -> bool:
        """Take all that has arrived, or wait for something; return whether anything has come."""
        came = False
        with suppress(queue.Empty):
            while True:
                self.put(self.inbox.get(timeout=0.0 if came else max(wait_s, 0.0)))
                came = True
        self._hand_over()
        return came

    def _hand_over(self) -> None:
        """Deliver all events that are due."""
        while self.later and self.later[0][0] <= now_s():
            time_s, _, action = heapq.heappop(self.later)
            self.targets[self.fleet.target_of(action.event.tag)].receive(action, time_s)

    def _wait(self) -> None:
        """Take what arrives until shortly before the next event."""
        dues_s = [target.next_s() for target in self._servers()]
        due_s = min(dues_s + [time_s for time_s, _, _ in self.later[:1]])
        before_s = now_s()
        wait_s = min(due_s - before_s - self.margin.s, LONGEST_WAIT_S)
        if wait_s <= 0:
            os.sched_yield()
        if not self._take(wait_s) and wait_s > 0:
            late_s = now_s() - before_s - wait_s
            self.margin.slept(late_s)
            if late_s > STILL_S:  # this process was stopped: what has come meanwhile goes first
                while self._take(READ_S):
                    pass
