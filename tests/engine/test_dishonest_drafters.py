"""Dishonest drafters in every topology: no node ends, every text is the truth, and logs replay."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from engine.net.actions import Send
from engine.net.content import Content
from engine.net.frames import pack, parse
from fleet.records.replay import replay
from fleet.records.run import make_run
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.stations.messages import Draft, DraftRequest, Message, Refusal, StationEvent, View
from tests.fakes.network import FakeNetwork
from tests.helpers.toy_fleets import AheadDrafter, ToyFleet
from tests.helpers.toys import STEP_S, VOCABULARY, ToyDrafter, check_texts, truth

PROMPT, NEW, MOST_S, HOSTILE = 8, 24, 1200.0, ("drafter", "drafter.1")
Forged = list[tuple[float, Message, Content]]
"""What is sent instead of a draft: times after it, messages and content."""


def again(draft: Draft, content: Content) -> Forged:
    return [(0.0, draft, content)] * 2


def misplaced(draft: Draft, content: Content) -> Forged:
    return [(0.0, replace(draft, base=draft.base + 1), content), (0.0, replace(draft, epoch=draft.epoch - 1), content)]


def empty(draft: Draft, _content: Content) -> Forged:
    return [(0.0, replace(draft, tokens=0), Content())] * 2


def longer(draft: Draft, content: Content) -> Forged:
    """A second draft that continues the first, as if the drafter worked ahead."""
    end = draft.base + draft.tokens
    follows = replace(draft, base=end), Content(truth(draft.request, end, end + draft.tokens))
    return [(0.0, draft, content), (0.0, *follows)]


def far_ahead(draft: Draft, content: Content) -> Forged:
    others = (replace(draft, epoch=1 << 61, tokens=0), Content()), (replace(draft, request=9), content)
    return [*((0.0, *other) for other in others), (0.0, draft, content)]


def before_it_is_asked(draft: Draft, content: Content) -> Forged:
    """A right draft for the next request of the tag, which arrives during its prefill."""
    guesses = [draft.request + step for step in (1, 2)]
    late_s = STEP_S["verify"] + STEP_S["prefill"] / 2
    early = [
        (Draft(draft.tag, guess, 0, PROMPT, 2), Content(truth(guess, PROMPT + 1, PROMPT + 3))) for guess in guesses
    ]
    return [(0.0, draft, content), *((late_s, *each) for each in early)]


def endless(draft: Draft, _content: Content) -> Forged:
    """Drafts ahead without an end, faster than they are verified."""
    n = max(draft.tokens, 1)
    ends = range(draft.base, draft.base + 60 * n, n)
    return [(0.0, replace(draft, base=end, tokens=n), Content(truth(draft.request, end, end + n))) for end in ends]


def refused_again(draft: Draft, content: Content) -> Forged:
    return [(0.0, draft, content), *[(0.0, Refusal(draft.tag, draft.request, "no"), Content())] * 2]


def of_another(draft: Draft, content: Content) -> Forged:
    """Drafts and refusals for every tag, whoever drafts for it."""
    tags = range(4)
    drafts: Forged = [(0.0, replace(draft, tag=tag), content) for tag in tags]
    return [*drafts, *((0.0, Refusal(tag, draft.request, "no"), Content()) for tag in tags)]


def untrue_loads(draft: Draft, content: Content) -> Forged:
    views = [(0.0, View(0, (1 << 60) + number, load), Content()) for number, load in enumerate((-1, 1 << 30, 0))]
    return [*views, (0.0, draft, content)]


def malformed(draft: Draft, _content: Content) -> Forged:
    bad = (Content([VOCABULARY * 9] * draft.tokens), Content([1] * 60_000), Content([1, 1], [5, 7]), Content([-7]))
    return [(0.0, draft, each) for each in bad]


FORGERIES: list[Callable[[Draft, Content], Forged]] = [
    again, misplaced, empty, longer, far_ahead, before_it_is_asked, endless, refused_again, of_another, untrue_loads,
    malformed,
]  # fmt: skip
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "star": {"verifiers": {"count": 2}},
    "several streams": {"verifiers": {"count": 1}, "workload": {"streams": 3}},
    "router": {"verifiers": {"count": 2}, "drafters": {"count": 2, "route": "round-robin"}},
    "shortest queue": {"verifiers": {"count": 2}, "drafters": {"count": 2, "route": "shortest-queue"}},
    "barrier": {
        "drafters": {"count": 3}, "verifiers": {"group": "barrier", "allocate": {"policy": "goodspeed", "budget": 9}},
    },
    "ahead": {"drafters": {"overlap": {"policy": "ahead", "least": 2}}, "verifiers": {"count": 2}},
    "ahead, busy": {"drafters": {"overlap": {"policy": "ahead", "busy": True}}, "verifiers": {"count": 2}},
    "ahead, router": {"drafters": {"count": 2, "route": "round-robin", "overlap": "ahead"}, "verifiers": {"count": 2}},
    "patient": {"verifiers": {"count": 2, "patience_s": 0.5, "rejoin_s": 0.2}, "drafters": {"lease_s": 2.0}},
}  # fmt: skip


class Dishonest(FakeNetwork):
    """A network in which one drafter sends forged messages instead of its drafts."""

    def __init__(self, forge: Callable[[Draft, Content], Forged]) -> None:
        super().__init__(1)
        self.forge = forge
        self.forged = 0

    def send(self, name: str, send: Send) -> bool:
        message, content = parse(send.frame)
        if name not in HOSTILE or not isinstance(message, Draft):
            return super().send(name, send)
        for delay_s, forged, its in self.forge(message, content):
            self.forged += 1
            self.at(self.now_s + delay_s, partial(super().send, name, replace(send, frame=pack(forged, its))))
        return True


class Unchecking(ToyDrafter):
    """A drafter that takes any prefix, because its forged drafts are not those that it remembers."""

    def receive(self, event: StationEvent, content: Content) -> None:
        if isinstance(event, DraftRequest):
            self.texts[event.tag] = event.request, truth(event.request, 0, event.base)


class UncheckingAhead(AheadDrafter):
    """The same, ahead."""

    receive = Unchecking.receive


class DishonestFleet(ToyFleet):
    """Its first drafter does not check what it gets."""

    def _start_drafter(self, drafter: int) -> None:
        self.checks = drafter > 0
        super()._start_drafter(drafter)

    def new_drafter(self) -> ToyDrafter:
        if self.checks:
            return super().new_drafter()
        return Unchecking() if self.fleet.in_turn else UncheckingAhead()


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_no_dishonest_drafter_changes_a_text_or_ends_a_node(
    forge: Callable[[Draft, Content], Forged], topology: str
) -> None:
    tables = {"drafters": {"depth": 4}, "workload": {}} | TOPOLOGIES[topology]
    tables["workload"] = {"requests": 12, "prompt_tokens": PROMPT, "new_tokens": NEW} | tables["workload"]
    scenario = make_scenario({"name": "toy", **tables})
    fleet, network = resolve(scenario), Dishonest(forge)
    toys = DishonestFleet(fleet, network, lambda step: STEP_S.get(step.kind, 0.0))
    toys.start()
    assert network.run(MOST_S, lambda: toys.finished), "it hangs"
    assert network.forged > 0
    check_texts(fleet, toys.outputs)
    assert [line for line in replay(make_run(scenario, "engine", toys.log, fleet)) if "log ends" not in line] == []
