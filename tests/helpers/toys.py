"""Toy models with sums as texts: executors that need no torch and know the truth."""

from collections.abc import Sequence

from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.node.worker import Executor
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Join, Message, StationEvent
from specfleet.fleet.times.step import Step

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


class ToyTarget(Executor):
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
        """Run a step; a chunk of a prompt commits nothing."""
        kinds = {member.tag: step.kind_of(member) for member in step.members}
        return tuple(
            Outcome(0 if kind == "chunk" else self._round(tag, kind == "verify")) for tag, kind in kinds.items()
        )

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


class ToyDrafter(Executor):
    """A drafter that guesses the truth, and every few tokens something else. It checks every prefix that it gets.

    `trusts`: whether it takes any prefix for the truth instead.
    """

    def __init__(self, trusts: bool = False) -> None:
        self.trusts = trusts
        self.texts: dict[int, tuple[int, list[int]]] = {}
        self.sent: dict[int, list[int]] = {}
        self.opened: dict[int, tuple[int, int]] = {}
        self.drafted = 0

    def receive(self, event: StationEvent, content: Content) -> None:
        if not isinstance(event, DraftRequest):
            return
        if self.trusts:
            self.texts[event.tag] = event.request, truth(event.request, 0, event.base)
        elif event.opening:
            assert (event.request, event.epoch) > self.opened.get(event.tag, (-1, 0)), "opened twice"
            self.opened[event.tag] = event.request, event.epoch
            self.sent.pop(event.tag, None)
            self.texts[event.tag] = event.request, list(content.tokens)
        else:
            text = self.texts[event.tag][1]
            accepted = event.base - len(text) - len(content.tokens)
            text += [*self.sent.get(event.tag, [])[:accepted], *content.tokens]
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
