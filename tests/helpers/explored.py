"""All meetings of a drafter's and a target's station: all orders of deliveries and of ends of steps.

There is no clock and no network: a state is both stations, the messages between them, and the texts. From a state one
of four events may follow: a message arrives at either end (each direction keeps its order), or a step of either end
finishes. Each guess of the drafter is chosen at its first draft, right or wrong. Equal states are visited once.
"""

import pickle
from collections.abc import Iterator
from typing import Any

import msgspec

from specfleet.engine.net.content import Content
from specfleet.engine.node.pending import PendingDrafts
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.build import drafter_station, verifier_station
from specfleet.fleet.stations.drafter import Discipline
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Released,
    StationEvent,
    StepDone,
)
from specfleet.fleet.stations.rows import Rows
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.stations.timeouts import Silence
from specfleet.fleet.times.step import Step

ROOM = 64  # tokens of a text; token p of request r is r * ROOM + p, and a wrong one is negative


def right(request: int, place: int) -> int:
    """The token of plain decoding at that place."""
    return request * ROOM + place


class State:
    """Both stations, the texts, and the messages between them.

    `new_tokens`: of each tag's requests, in order.
    """

    def __init__(self, fleet: Fleet, prompt: int, new_tokens: tuple[int, ...], tags: int = 1) -> None:
        self.ahead = not fleet.in_turn
        self.prompt, self.new_tokens = prompt, new_tokens
        self.target, self.drafter = verifier_station(fleet, 0), drafter_station(fleet)
        self.up: list[tuple[Any, list[int]]] = []
        self.down: list[tuple[Any, list[int]]] = []
        self.pending, self.taken = PendingDrafts(), {}  # type: tuple[PendingDrafts, dict[int, list[int]]]
        self.texts: dict[int, list[int]] = {}  # at the target, by tag
        self.last: dict[int, int] = {}  # its last own token
        self.guessed: dict[int, list[int]] = {}  # at the drafter: its copy of the text
        self.sent: dict[int, list[int]] = {}  # the last draft of each tag
        self.guesses: dict[int, bool] = {}  # by right token: whether the drafter guesses it
        for tag in range(tags):
            self.join(tag, 0)
        self.start(self.target)

    # --- possible events ---

    def following(self) -> Iterator["State"]:
        """Yield every state after one event."""
        happenings = (
            (bool(self.up), State.arrive_at_drafter, "drafter"),
            (bool(self.down), State.arrive_at_target, "target"),
            (self.target.running is not None, State.end_verification, "target"),
        )
        for may, happen, station in happenings:
            if may:
                after = self.twin(station)
                happen(after)
                yield after
        if self.drafter.running is not None:
            yield from self.ends_of_drafts()

    def ends_of_drafts(self) -> Iterator["State"]:
        """Yield the states after the drafter's step, one for each choice of new guesses."""
        step = self.drafter.running
        assert step is not None
        unknown = [token for member in step.members for token in self.list_unknown(step, member.tag)]
        for number in range(1 << len(unknown)):
            after = self.twin("drafter")
            after.guesses |= {token: bool(number >> place & 1) for place, token in enumerate(unknown)}
            after.end_draft()
            yield after

    def list_unknown(self, step: Step, tag: int) -> list[int]:
        """The right tokens that a step is the first to draft, and that can still be used.

        Tokens after a wrong guess or in committed text cannot; for them the drafter guesses plain decoding's tokens,
        which is the most misleading choice.
        """
        session = self.drafter.sessions.get(tag)
        if step.kind != "draft" or session is None:
            return []
        (member,) = [member for member in step.members if member.tag == tag]
        if self.guessed[tag][: member.base] != [right(member.request, place) for place in range(member.base)]:
            return []
        places = range(member.base, member.base + member.tokens)
        known = self.guesses.keys() | set(self.texts.get(tag, ()))
        return [token for place in places if (token := right(member.request, place)) not in known]

    # --- events ---

    def join(self, tag: int, number: int) -> None:
        """Send a user's request."""
        request = tag * len(self.new_tokens) + number
        self.texts[tag] = [right(request, place) for place in range(self.prompt)]
        self.apply(self.target, Join(tag, request, self.prompt, self.new_tokens[number]))

    def arrive_at_drafter(self) -> None:
        """Deliver the oldest message on its way up."""
        message, tokens = self.up.pop(0)
        before = self.drafter.sessions.get(message.tag)
        followed = self.apply(self.drafter, message)
        assert not any(isinstance(instruction, Ignored) for instruction in followed), f"the drafter drops {message}"
        if isinstance(message, DraftRequest):
            if message.opening:
                self.guessed[message.tag] = list(tokens)
            elif self.ahead:
                self.guessed[message.tag][message.base - 1 :] = tokens
            else:
                assert before is not None
                accepted = message.base - before.base - 1
                self.guessed[message.tag][before.base :] = self.sent[message.tag][:accepted] + tokens
            request = message.request
            truth = [right(request, place) for place in range(message.base)]
            assert self.guessed[message.tag] == truth, f"the drafter's text is wrong after {message}"
        self.start(self.drafter)

    def arrive_at_target(self) -> None:
        """Deliver the oldest message on its way down; only outdated ones may be dropped."""
        message, tokens = self.down.pop(0)
        current = self.is_current(message)
        ignored = any(isinstance(instruction, Ignored) for instruction in self.apply(self.target, message))
        assert ignored != current, f"{message}: " + ("dropped" if ignored else "taken")
        if not ignored:
            self.pending.receive(message, Content(tokens))
        self.start(self.target)

    def end_verification(self) -> None:
        """End the target's step; its acceptance follows from the tokens."""
        step = self.target.running
        assert step is not None
        outcomes = []
        for member in step.members:
            text, drafted = self.texts[member.tag], self.taken.pop(member.tag, [])
            assert len(drafted) == (member.tokens if step.kind_of(member) == "verify" else 0), "the tail is another's"
            wanted = [right(member.request, len(text) + place) for place in range(len(drafted) + 1)]
            wrong = [place for place, token in enumerate(drafted) if token != wanted[place]]
            accepted = wrong[0] if wrong else len(drafted)
            self.last[member.tag] = wanted[accepted]
            text += wanted[: accepted + 1]
            for token in text:  # not drafted again
                self.guesses.pop(token, None)
            outcome = Outcome(accepted)
            if self.ahead and step.kind_of(member) == "verify":
                outcome = self.pending.resolved(member.tag, member.tokens, outcome, wanted[accepted])
            outcomes.append(outcome)
        self.apply(self.target, StepDone(step.number, tuple(outcomes), 0.0))
        self.down = [(message, tokens if self.is_current(message) else []) for message, tokens in self.down]
        self.start(self.target)

    def is_current(self, draft: Draft) -> bool:
        """Whether a draft is of the target's current epoch."""
        session = self.target.sessions.get(draft.tag)
        return session is not None and (session.request, session.epoch) == (draft.request, draft.epoch)

    def end_draft(self) -> None:
        """End the drafter's step."""
        step = self.drafter.running
        assert step is not None
        for member in step.members:
            if step.kind != "draft" or member.tag not in self.drafter.sessions:
                continue
            if self.drafter.sessions[member.tag].request != member.request:
                continue
            text, drafted = self.guessed[member.tag], list[int]()
            begun = text[: member.base]
            for place in range(member.base, member.base + member.tokens):
                token = right(member.request, place)
                drafted.append(token if self.guesses.get(token, True) else -token - 1)
            self.sent[member.tag] = drafted
            if self.ahead and len(text) == member.base and self.drafter.sessions[member.tag].epoch == member.epoch:
                self.guessed[member.tag] = begun + drafted
            self.guesses = dict(sorted(self.guesses.items()))
        self.apply(self.drafter, StepDone(step.number, (Outcome(),) * len(step.members), 0.0))
        self.start(self.drafter)

    # --- consequences ---

    def apply(self, station: Station, event: StationEvent) -> list[Instruction]:
        """Apply an event to a station, and carry out its instructions."""
        followed = station.handle(event, 0.0)
        for instruction in followed:
            match instruction:
                case DraftRequest(tag=tag, opening=opening):
                    self.up.append((instruction, list(self.texts[tag]) if opening else [self.last[tag]]))
                case Leave():
                    self.up.append((instruction, []))
                case Draft(tag=tag, tokens=count):
                    useful = count and self.is_current(instruction)
                    self.down.append((instruction, self.sent[tag] if useful else []))
                    if self.ahead:
                        self.sent.pop(tag, None)
                case Released(tag=tag) if station is self.target:
                    self.pending.forget(tag)
                case Finished(tag=tag, request=request):
                    self.finish(tag, request)
                case Released() | Ignored():
                    pass
                case _:
                    raise AssertionError(f"{station.name} says {instruction}")
        return followed

    def finish(self, tag: int, request: int) -> None:
        """Check a complete text, and open the next request."""
        number = request % len(self.new_tokens)
        length = self.prompt + self.new_tokens[number]
        truth = [right(request, place) for place in range(length)]
        assert self.texts[tag][:length] == truth, f"request {request} is not plain decoding's"
        del self.texts[tag]
        if number + 1 < len(self.new_tokens):
            self.join(tag, number + 1)

    def start(self, station: Station) -> None:
        """Start the next step of a station, if any."""
        if not station.ready:
            return
        plan = station.plan(0.0)
        assert isinstance(plan, Start)
        station.running = msgspec.structs.replace(plan.step, number=1)  # so that equal states compare equal
        station.steps_started = 0
        if station is self.target:
            for member in plan.step.members:
                self.taken[member.tag] = list(self.pending.take(member.tag).tokens)

    # --- checks ---

    def check(self) -> None:
        """Check the laws of every state."""
        for tag, session in self.target.sessions.items():
            kept = sum(len(content.tokens) for content in self.pending.drafts.get(tag, []))
            assert session.tail == kept + len(self.taken.get(tag, [])), "station and tail disagree"
            assert session.base == min(len(self.texts[tag]), session.goal)
            assert session.base + session.tail <= session.goal or not self.ahead, "more is drafted than anybody can use"
        assert len(self.down) <= max(self.new_tokens) * 2 + 2, "drafts pile up"
        assert len(self.up) <= (max(self.new_tokens) + 2) * max(len(self.target.sessions), 1), "requests pile up"

    @property
    def is_over(self) -> bool:
        """Whether every request is complete, and no message, step or session is left."""
        stations = self.target, self.drafter
        left = any(station.sessions or station.waiting or station.program or station.running for station in stations)
        return not (left or self.texts or self.up or self.down or self.pending.drafts)

    def key(self) -> tuple[str, str, str]:
        """A key that equal states share."""
        rest = {name: _inside(value) for name, value in vars(self).items() if name not in _APART}
        return _key_of(self.target), _key_of(self.drafter), repr(rest)

    def twin(self, changed: str) -> "State":
        """Return a copy before an event of one station; the other station, which stays as it is, is shared."""
        after = object.__new__(State)
        for name, value in vars(self).items():
            is_shared = name in ("target", "drafter") and name != changed
            setattr(after, name, value if is_shared else _copied(value))
        return after


_HOLDERS = (Station, PendingDrafts, Silence, Discipline, Rows)
_APART = ("target", "drafter")
_NO_STATE = ("_handlers", "rng", "_key", "planned", "is_planned", "parts")


def _key_of(station: Station) -> str:
    """The content of a station as text, kept with it: a station that is shared does not change any more."""
    state = vars(station)
    if "_key" not in state:
        state["_key"] = repr(_inside(station))
    return state["_key"]  # type: ignore[no-any-return]


def _inside(thing: Any) -> Any:
    """The content of an object, nested objects included; values as they are."""
    if isinstance(thing, _HOLDERS):
        return [(name, _inside(value)) for name, value in vars(thing).items() if name not in _NO_STATE]
    return thing


def _copied(value: Any) -> Any:
    copied = pickle.loads(pickle.dumps(value))  # noqa: S301 (of our own; deepcopy would count a buffer's work twice)
    if isinstance(copied, Station):
        vars(copied).pop("_key", None)
    return copied


class Explored(msgspec.Struct):
    """The result. `ends`: final states."""

    states: int = 0
    ends: int = 0


def explore(first: State) -> Explored:
    """Visit every state after `first`; AssertionError if a law is broken.

    No path returns to a state, and every path ends in a final state.
    """
    visited: dict[tuple[str, str, str], bool] = {}  # by state: whether all its successors are visited
    explored = Explored()
    path: list[tuple[tuple[str, str, str], Iterator[State]]] = []

    def enter(state: State) -> None:
        key = state.key()
        if key in visited:
            assert visited[key], "it goes round for ever"
            return
        state.check()
        visited[key] = False
        following = list(state.following())
        explored.states += 1
        if not following:
            assert state.is_over, f"nothing can happen any more, and this is left: {key}"
            explored.ends += 1
        path.append((key, iter(following)))

    enter(first)
    while path:
        key, following = path[-1]
        after = next(following, None)
        if after is None:
            visited[key] = True
            path.pop()
        else:
            enter(after)
    return explored
