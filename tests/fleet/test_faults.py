"""One drafter and its targets under random interleavings and faults: a state machine checks the laws after every step.

Each link keeps the order of its messages, as TCP does. Everything else is random: delays, copies of messages, unknown
senders, step times, and a guest target that leaves at any time.
"""

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.policies.admit import Admission, AtMost, Everyone
from fleet.policies.allocate import Fixed
from fleet.policies.order import Fifo, Order, Priority
from fleet.policies.outcome import Outcome
from fleet.policies.warm_up import AfterIdle, NoWarmUp, WarmUp
from fleet.scenario.resolved import ResolvedDrafters, ResolvedVerifiers
from fleet.stations.drafter import DrafterStation
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Message,
    Refusal,
    Released,
    StepDone,
)
from fleet.stations.station import WAIT, Start, Station
from fleet.stations.verifier import VerifierStation
from fleet.times.step import Step

DEPTH = 3
PROMPT_TOKENS = 4
REQUESTS = 3  # of every target
GUEST, STRANGER = 90, 99  # tags
UP, DOWN = "up", "down"

orders: st.SearchStrategy[Order] = st.sampled_from([Fifo(), Priority()])
admissions: st.SearchStrategy[Admission] = st.sampled_from([Everyone(), AtMost(1), AtMost(2)])
warm_ups: st.SearchStrategy[WarmUp] = st.sampled_from([NoWarmUp(), AfterIdle(2.0, 1)])
choices = st.integers(0, 11)  # for `pick`

Stream = tuple[int, int]  # (tag, request)
T = TypeVar("T")


def pick(options: Sequence[T], choice: int) -> T:
    return options[choice % len(options)]


def snapshot(station: Station) -> tuple[object, ...]:
    """Return the whole state that decides the station's next step."""
    cold = set(station.cache.cold) if isinstance(station, DrafterStation) else None
    return (
        dict(station.sessions), list(station.waiting), list(station.program), station.running,
        station.steps_started, station.warm_tokens, cold,
    )  # fmt: skip


class FaultyStar(RuleBasedStateMachine):
    """Real stations on links that a test controls, beside a plain model of the expected results."""

    @initialize(
        count=st.integers(1, 3),
        order=orders,
        admission=admissions,
        warm_up=warm_ups,
        new_tokens=st.integers(1, 12),
        priorities=st.tuples(*[st.integers(0, 2)] * 3),
    )
    def build(
        self,
        count: int,
        order: Order,
        admission: Admission,
        warm_up: WarmUp,
        new_tokens: int,
        priorities: tuple[int, ...],
    ) -> None:
        self.drafter = DrafterStation(
            "drafter", ResolvedDrafters(allocate=Fixed(DEPTH), order=order, admit=admission, warm_up=warm_up)
        )
        self.limit = admission.sessions if isinstance(admission, AtMost) else count + 1
        self.order, self.priorities = order, priorities
        self.goal = PROMPT_TOKENS + new_tokens
        self.verifiers = [VerifierStation(f"verifier.{target + 1}", ResolvedVerifiers()) for target in range(count)]
        self.stations: list[Station] = [self.drafter, *self.verifiers]
        self.now_s, self.events = 0.0, 0
        self.links: dict[tuple[int, str], deque[Message]] = {
            (tag, way): deque() for tag in range(count) for way in (UP, DOWN)
        }
        self.delivered: dict[tuple[str, Message], None] = {}  # an ordered set
        self.queue: list[tuple[int, int]] = []  # (tag, priority) as the drafter should serve them
        self.guest_request, self.guest_is_in = 0, False
        # Results so far.
        self.committed: dict[Stream, int] = {}
        self.joined = [0] * count
        self.finished: list[Stream] = []
        self.refused: set[Stream] = set()
        self.left: set[Stream] = set()
        self.prefilled: set[Stream] = set()
        self.drafts: set[tuple[int, int, int]] = set()

    # The world: users, links, devices.

    @precondition(lambda self: self.free_users)
    @rule(choice=choices)
    def user_asks(self, choice: int) -> None:
        tag = pick(self.free_users, choice)
        request = self.joined[tag]
        self.joined[tag] += 1
        self.committed[tag, request] = PROMPT_TOKENS
        join = Join(tag, request, PROMPT_TOKENS, self.goal - PROMPT_TOKENS, self.priorities[tag])
        assert self.tell(self.verifiers[tag], join) == []

    @precondition(lambda self: self.busy_links)
    @rule(choice=choices)
    def link_delivers(self, choice: int) -> None:
        tag, way = pick(self.busy_links, choice)
        message = self.links[tag, way].popleft()
        if (way, message) in self.delivered:
            self.assert_harmless(self.receiver(tag, way), message)
        else:
            self.first_delivery(tag, way, message)

    @precondition(lambda self: self.busy_links)
    @rule(choice=choices)
    def link_duplicates(self, choice: int) -> None:
        messages = self.links[pick(self.busy_links, choice)]
        messages.appendleft(messages[0])

    @precondition(lambda self: self.delivered)
    @rule(choice=choices)
    def old_message_comes_again(self, choice: int) -> None:
        way, message = pick(list(self.delivered)[::-1], choice)
        self.assert_harmless(self.receiver(message.tag, way), message)

    @rule(choice=choices, dt_s=st.integers(0, 3))
    def device_starts(self, choice: int, dt_s: int) -> None:
        self.now_s += dt_s
        self.start(pick(self.stations, choice))

    @precondition(lambda self: self.running)
    @rule(choice=choices, accepted=st.integers(0, DEPTH))
    def device_finishes(self, choice: int, accepted: int) -> None:
        self.finish(pick(self.running, choice), accepted)

    # Unknown senders and faults.

    @rule(message=st.sampled_from([DraftRequest(STRANGER, 0, 2, 9), Leave(STRANGER, 0)]))
    def stranger_writes_to_the_drafter(self, message: Message) -> None:
        self.assert_harmless(self.drafter, message)

    @rule(choice=choices, message=st.sampled_from([Draft(STRANGER, 0, 1, 5, DEPTH), Refusal(STRANGER, 0, "full")]))
    def stranger_writes_to_a_verifier(self, choice: int, message: Message) -> None:
        self.assert_harmless(pick(self.verifiers, choice), message)

    @rule(choice=choices)
    def device_reports_an_old_step(self, choice: int) -> None:
        self.assert_harmless(pick(self.stations, choice), StepDone(0, (Outcome(),), 1.0))

    @precondition(lambda self: not self.guest_is_in)
    @rule()
    def guest_opens(self) -> None:
        self.guest_request += 1
        message = DraftRequest(GUEST, self.guest_request, 1, PROMPT_TOKENS + 1, opening=True)
        self.first_delivery(GUEST, UP, message)
        self.guest_is_in = GUEST in self.drafter.sessions

    @precondition(lambda self: self.guest_is_in)
    @rule()
    def guest_leaves_even_during_a_step(self) -> None:
        self.first_delivery(GUEST, UP, Leave(GUEST, self.guest_request))
        self.guest_is_in = False

    @precondition(lambda self: self.events > 30)
    @rule()
    def everything_in_flight_arrives(self) -> None:
        """Progress: once links deliver and devices run, every request is complete, exactly once."""
        for _ in range(40 * REQUESTS * len(self.verifiers)):
            for _ in self.free_users:
                self.user_asks(0)
            for station in self.stations:
                self.start(station)
            for station in self.running:
                self.finish(station, accepted=1)
            for _ in self.busy_links:
                self.link_delivers(0)
        assert not self.busy_links
        assert not any(station.ready or station.running for station in self.stations)
        assert sorted(self.finished) == [(tag, n) for tag in range(len(self.verifiers)) for n in range(REQUESTS)]
        assert not any(verifier.sessions for verifier in self.verifiers)
        assert set(self.drafter.sessions) <= {GUEST}

    # Parts and their laws.

    @property
    def free_users(self) -> list[int]:
        """Targets with requests left and none open."""
        complete = [sum(stream[0] == tag for stream in self.finished) for tag in range(len(self.verifiers))]
        return [tag for tag, joined in enumerate(self.joined) if joined == complete[tag] < REQUESTS]

    @property
    def busy_links(self) -> list[tuple[int, str]]:
        return [link for link, messages in self.links.items() if messages]

    @property
    def running(self) -> list[Station]:
        return [station for station in self.stations if station.running]

    def receiver(self, tag: int, way: str) -> Station:
        return self.drafter if way == UP or tag == GUEST else self.verifiers[tag]

    def tell(self, station: Station, event: Join | Message | StepDone) -> list[Instruction]:
        self.events += 1
        before = snapshot(station)
        instructions = station.handle(event, self.now_s)
        if any(isinstance(instruction, Ignored) for instruction in instructions):
            assert len(instructions) == 1
            assert snapshot(station) == before, "an ignored event changed the station"
        return instructions

    def assert_harmless(self, station: Station, event: Message | StepDone) -> None:
        before = snapshot(station)
        instructions = self.tell(station, event)
        assert [type(instruction) for instruction in instructions] == [Ignored]
        assert snapshot(station) == before

    def first_delivery(self, tag: int, way: str, message: Message) -> None:
        self.delivered[way, message] = None
        instructions = self.tell(self.receiver(tag, way), message)
        assert not any(isinstance(instruction, Ignored) for instruction in instructions), "a message was lost"
        if isinstance(message, DraftRequest) and not instructions:
            self.queue.append((tag, message.priority))
        if isinstance(message, Leave):
            self.left.add((tag, message.request))
            self.queue = [waiting for waiting in self.queue if waiting[0] != tag]
        self.post(instructions)

    def start(self, station: Station) -> None:
        was_running, opens_group = station.running, not station.program
        plan = station.plan(self.now_s)
        if was_running is not None:
            assert plan == WAIT
            assert station.running is was_running
        elif isinstance(plan, Start) and station is self.drafter and opens_group:
            assert plan.step.members[0].tag == self.expected_next()

    def expected_next(self) -> int:
        """The first waiting request or, with priorities, the first of the most urgent; it leaves the queue."""
        urgent = max(priority for _, priority in self.queue)
        among = [item for item in self.queue if isinstance(self.order, Fifo) or item[1] == urgent]
        self.queue.remove(among[0])
        return among[0][0]

    def finish(self, station: Station, accepted: int) -> None:
        step = station.running
        assert step is not None
        if isinstance(station, VerifierStation):
            accepted = min(accepted, step.members[0].tokens) if step.kind == "verify" else 0
            outcome = Outcome(accepted)
            self.book(step, outcome)
        else:
            outcome = Outcome()
        if step.kind == "prefill" and station is self.drafter:
            self.prefilled.add((step.members[0].tag, step.members[0].request))
        done = StepDone(step.number, (outcome,), 1.0)
        instructions = self.tell(station, done)
        self.assert_harmless(station, done)  # the same report again
        self.post(instructions)

    def book(self, step: Step, outcome: Outcome) -> None:
        stream = step.members[0].tag, step.members[0].request
        self.committed[stream] = min(self.committed[stream] + outcome.accepted + 1, self.goal)

    def post(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            stream = instruction.tag, instruction.request
            if isinstance(instruction, Draft):
                assert stream not in self.left, "a draft for a request that left"
                assert stream in self.prefilled, "a draft before the prompt's prefill"
                assert (*stream, instruction.epoch) not in self.drafts, "two drafts in one epoch"
                self.drafts.add((*stream, instruction.epoch))
            if isinstance(instruction, Finished):
                assert stream not in self.finished, "a request was served twice"
                self.finished.append(stream)
            elif isinstance(instruction, Refusal):
                self.refused.add(stream)
            if isinstance(instruction, DraftRequest | Leave):
                assert stream not in self.refused, "a refused target turns to the drafter"
                self.links[instruction.tag, UP].append(instruction)
            elif isinstance(instruction, Draft | Refusal) and instruction.tag != GUEST:
                self.links[instruction.tag, DOWN].append(instruction)
            else:
                assert isinstance(instruction, Released | Finished) or instruction.tag == GUEST

    # Laws at every moment.

    @invariant()
    def the_verifiers_commit_what_was_accepted_and_no_more_than_asked(self) -> None:
        for verifier in self.verifiers:
            for session in verifier.sessions.values():
                assert session.base == self.committed[session.tag, session.request] <= self.goal
                assert session.tail in {0, DEPTH}

    @invariant()
    def the_drafter_follows_and_never_leads(self) -> None:
        for tag, session in self.drafter.sessions.items():
            if tag != GUEST:
                assert session.base <= self.committed[tag, session.request]

    @invariant()
    def no_session_waits_twice(self) -> None:
        for station in self.stations:
            tags = [work.tag for work in station.waiting]
            assert len(tags) == len(set(tags))
            assert set(tags) <= set(station.sessions)

    @invariant()
    def the_drafter_queues_exactly_the_unserved_requests(self) -> None:
        assert [(work.tag, work.priority) for work in self.drafter.waiting] == self.queue

    @invariant()
    def the_admission_limit_holds(self) -> None:
        assert len(self.drafter.sessions) <= self.limit


TestFaultyStar = FaultyStar.TestCase
TestFaultyStar.settings = settings(derandomize=True, deadline=None, max_examples=30, stateful_step_count=40)
