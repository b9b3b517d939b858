"""Fleets of toy models with sums as texts: nodes with executors that need no torch and know the truth."""

from collections.abc import Sequence

from engine.net.client import ClientEnd
from engine.net.connections import ConnectionTable
from engine.net.content import NOTHING, Content
from engine.net.server import ServerEnd
from fleet.policies.outcome import Outcome
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import requests_of
from fleet.stations.build import drafter_station, join_of, verifier_station
from fleet.stations.messages import Draft, DraftRequest, Join, Message, StationEvent
from fleet.times.step import Step
from tests.fakes.network import FakeNetwork
from tests.fakes.node import FakeNode

VOCABULARY = 1000
STEP_S = {"prefill": 0.02, "draft": 0.004, "verify": 0.01, "decode": 0.01, "warm_up": 0.001}


def truth(request: int, start: int, end: int) -> list[int]:
    """The tokens of a request's text, prompt included, at places start to end."""
    return [(7919 * request + 31 * place + place * place) % VOCABULARY for place in range(start, end)]


def toy_fleet(**tables: dict[str, object]) -> Fleet:
    """Two targets with five short requests each, and a drafter."""
    content: dict[str, dict[str, object]] = {
        "verifiers": {"count": 2}, "drafters": {"depth": 4},
        "workload": {"requests": 10, "prompt_tokens": 8, "new_tokens": 24},
    }  # fmt: skip
    merged = content | {name: content.get(name, {}) | table for name, table in tables.items()}
    return resolve(make_scenario({"name": "toy", **merged}))


class ToyTarget:
    """A target with the true text."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[Join, list[int]]] = {}
        self.drafts: dict[int, Content] = {}
        self.outputs: dict[int, list[int]] = {}

    def receive(self, event: StationEvent, content: Content) -> None:
        if isinstance(event, Join):
            self.texts[event.tag] = event, truth(event.request, 0, event.prompt_tokens)
        elif isinstance(event, Draft):
            self.drafts[event.tag] = content

    def run(self, step: Step) -> tuple[Outcome, ...]:
        return tuple(Outcome(self._round(member.tag, step.kind == "verify")) for member in step.members)

    def _round(self, tag: int, verifies: bool) -> int:
        join, text = self.texts[tag]
        drafted = list(self.drafts.pop(tag, NOTHING).tokens) if verifies else []
        wanted = truth(join.request, len(text), len(text) + len(drafted) + 1)
        accepted = next((place for place, token in enumerate(drafted) if token != wanted[place]), len(drafted))
        text += wanted[: accepted + 1]
        return accepted

    def content_of(self, message: Message) -> Content:
        if not isinstance(message, DraftRequest):
            return NOTHING
        text = self.texts[message.tag][1]
        return Content(text[: message.base] if message.opening else text[message.base - 1 : message.base])

    def release(self, tag: int) -> None:
        join, text = self.texts.pop(tag)
        self.drafts.pop(tag, None)
        self.outputs[join.request] = text[join.prompt_tokens : join.prompt_tokens + join.new_tokens]


class ToyDrafter:
    """A drafter that guesses the truth, and every few tokens something else. It checks every prefix that it gets."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[int, list[int]]] = {}
        self.sent: dict[int, list[int]] = {}
        self.opened: dict[int, tuple[int, int]] = {}
        self.drafted = 0

    def receive(self, event: StationEvent, content: Content) -> None:
        if not isinstance(event, DraftRequest):
            return
        if event.opening:
            assert (event.request, event.epoch) > self.opened.get(event.tag, (-1, 0)), "opened twice"
            self.opened[event.tag] = event.request, event.epoch
            self.sent.pop(event.tag, None)
            self.texts[event.tag] = event.request, list(content.tokens)
        else:
            text = self.texts[event.tag][1]
            text += [*self.sent.get(event.tag, [])[: event.base - len(text) - 1], *content.tokens]
        assert self.texts[event.tag][1] == truth(event.request, 0, event.base), f"poisoned by {event}"

    def run(self, step: Step) -> tuple[Outcome, ...]:
        for member in step.members:
            if step.kind == "draft":
                request, text = self.texts[member.tag]
                right = truth(request, len(text), len(text) + member.tokens)
                self.sent[member.tag] = [
                    token if (place + request) % 7 else (token + 1) % VOCABULARY
                    for place, token in enumerate(right, len(text))
                ]
                self.drafted += member.tokens
        return (Outcome(),) * len(step.members)

    def content_of(self, message: Message) -> Content:
        return Content(self.sent[message.tag]) if isinstance(message, Draft) and message.tokens else NOTHING

    def release(self, tag: int) -> None:
        del self.texts[tag]
        self.sent.pop(tag, None)


class ToyStar:
    """A drafter and its targets on a network in memory. `logs`: those of every life of every node, by its station."""

    def __init__(self, fleet: Fleet, network: FakeNetwork) -> None:
        self.fleet = fleet
        self.network = network
        self.lives = 0
        self.logs: list[tuple[str, Log]] = []
        self.outputs: list[dict[int, list[int]]] = []
        for target in range(fleet.verifiers.count):
            network.connect(target_name(target), 0, "drafter")

    def start_drafter(self) -> None:
        self.lives += 1
        recorded = RecordedStation(drafter_station(self.fleet), "replayed")
        self.logs.append(("drafter", recorded.log))
        connections = ConnectionTable(ServerEnd(self.fleet, self.lives))
        self.network.start(FakeNode(self.network, "drafter", recorded, ToyDrafter(), connections, seconds_of))

    def start_target(self, target: int) -> None:
        self.lives += 1
        station = verifier_station(self.fleet, target)
        recorded = RecordedStation(station, "replayed")
        self.logs.append((station.name, recorded.log))
        client = ClientEnd(self.fleet, target, self.lives)
        users = {target: (join_of(self.fleet, target, request) for request in requests_of(self.fleet, target))}
        executor = ToyTarget()
        self.outputs.append(executor.outputs)
        connections = ConnectionTable(clients={0: client})
        self.network.start(
            FakeNode(self.network, target_name(target), recorded, executor, connections, seconds_of, users)
        )

    def start(self) -> None:
        """Start all nodes."""
        self.start_drafter()
        for target in range(self.fleet.verifiers.count):
            self.start_target(target)

    @property
    def finished(self) -> bool:
        """Whether every target is up and has all its texts."""
        names = [target_name(target) for target in range(self.fleet.verifiers.count)]
        return all(name in self.network.nodes and self.network.nodes[name].finished for name in names)


def target_name(target: int) -> str:
    return f"target {target}"


def seconds_of(step: Step) -> float:
    return STEP_S[step.kind]


def check_texts(fleet: Fleet, outputs: Sequence[dict[int, list[int]]]) -> None:
    """Check that every text, of any life of a target, is the truth, and that none is missing."""
    prompt, new = fleet.workload.prompt_tokens, fleet.workload.new_tokens
    assert isinstance(prompt, int)
    assert isinstance(new, int)
    for life in outputs:
        for request, text in life.items():
            assert text == truth(request, prompt, prompt + new)
    assert {request for life in outputs for request in life} == set(range(fleet.workload.requests))
