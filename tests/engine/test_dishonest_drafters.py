"""Honest and dishonest drafters in every topology: no node ends, every text is the truth, and logs replay."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from specfleet.engine.net.actions import Send
from specfleet.engine.net.content import Content
from specfleet.engine.net.frames import pack, parse
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import make_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import Draft, Message, Refusal, View
from tests.fakes.network import FakeNetwork
from tests.helpers.toy_fleets import AheadDrafter, ToyFleet
from tests.helpers.toys import STEP_S, VOCABULARY, ToyDrafter, check_texts, truth

PROMPT, NEW, MAX_S, HOSTILE, HONEST = 8, 24, 1200.0, ("drafter", "drafter.1"), "honest"
Forged = list[tuple[float, Message, Content]]
"""What is sent instead of a draft: times after it, messages and content."""


def forgeries(draft: Draft, content: Content) -> dict[str, Forged]:
    """What a dishonest drafter may send instead of a draft, by its kind."""
    tag, request, base, n = draft.tag, draft.request, draft.base, max(draft.tokens, 1)
    right: list[tuple[float, Message, Content]] = [(0.0, draft, content)]

    def at(start: int) -> tuple[Draft, Content]:
        return replace(draft, base=start, tokens=n), Content(truth(request, start, start + n))

    def of(other: int, late_s: float = 0.0) -> tuple[float, Message, Content]:
        return late_s, Draft(tag, other, 0, PROMPT, 2), Content(truth(other, PROMPT + 1, PROMPT + 3))

    bad = Content([VOCABULARY * 9] * n), Content([1] * 60_000), Content([1, 1], [5, 7]), Content([-7])
    no = [(0.0, Refusal(each, request, "no"), Content()) for each in range(4)]
    during_prefill_s = STEP_S["verify"] + STEP_S["prefill"] / 2
    return {
        HONEST: right,
        "again": right * 2,
        "misplaced": [(0.0, replace(draft, base=base + 1), content), (0.0, replace(draft, epoch=0), content)],
        "empty": [(0.0, replace(draft, tokens=0), Content())] * 2,
        "longer, as if ahead": [*right, (0.0, *at(base + n))],
        "endless": [(0.0, *at(start)) for start in range(base, base + 60 * n, n)],
        "of a far epoch": [(0.0, replace(draft, epoch=1 << 61, tokens=0), Content()), *right],
        "of another request": [(0.0, replace(draft, request=9), content), *right],
        "before it is asked": [*right, *(of(request + step, during_prefill_s) for step in (1, 2))],
        "a refusal as well": [*right, (0.0, Refusal(tag, request, "no"), Content()), *right],
        "for every tag": [*((0.0, replace(draft, tag=each), content) for each in range(4)), *no],
        "untrue loads": [*((0.0, View(0, (1 << 60) + load, load - 1), Content()) for load in range(3)), *right],
        "malformed": [(0.0, draft, each) for each in bad],
    }


FORGERIES = list(forgeries(Draft(0, 0, 1, PROMPT, 4), Content()))
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "star": {"verifiers": {"count": 2}},
    "several streams": {"verifiers": {"count": 1}, "workload": {"streams": 3}},
    "router": {"verifiers": {"count": 2}, "drafters": {"count": 2, "route": "round-robin"}},
    "shortest queue": {"verifiers": {"count": 2}, "drafters": {"count": 2, "route": "shortest-queue"}},
    "barrier": {
        "drafters": {"count": 3}, "verifiers": {"late": "wait", "allocate": {"policy": "goodspeed", "budget": 9}},
    },
    "ahead": {"drafters": {"overlap": {"policy": "ahead", "least": 2}}, "verifiers": {"count": 2}},
    "ahead, busy": {"drafters": {"overlap": {"policy": "ahead", "busy": True}}, "verifiers": {"count": 2}},
    "ahead, router": {"drafters": {"count": 2, "route": "round-robin", "overlap": "ahead"}, "verifiers": {"count": 2}},
    "patient": {"verifiers": {"count": 2, "patience_s": 0.5, "rejoin_s": 0.2}, "drafters": {"lease_s": 2.0}},
}  # fmt: skip


class Dishonest(FakeNetwork):
    """A network in which one drafter sends forged messages instead of its drafts."""

    def __init__(self, kind: str) -> None:
        super().__init__(1)
        self.kind = kind
        self.forged = 0

    def send(self, name: str, send: Send) -> bool:
        message, content = parse(send.frame)
        if name not in HOSTILE or not isinstance(message, Draft):
            return super().send(name, send)
        for delay_s, forged, its in forgeries(message, content)[self.kind]:
            self.forged += 1
            self.at(self.now_s + delay_s, partial(super().send, name, replace(send, frame=pack(forged, its))))
        return True


class DishonestFleet(ToyFleet):
    """Its first drafter takes what it gets for the truth: its forged drafts are not those that it remembers."""

    def new_drafter(self, drafter: int) -> ToyDrafter:
        return (ToyDrafter if self.fleet.in_turn else AheadDrafter)(trusts=drafter == 0)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", FORGERIES)
def test_no_drafter_changes_a_text_or_ends_a_node(kind: str, topology: str) -> None:
    tables = {"drafters": {"depth": 4}, "workload": {}} | TOPOLOGIES[topology]
    tables["workload"] = {"requests": 12, "prompt_tokens": PROMPT, "new_tokens": NEW} | tables["workload"]
    scenario = make_scenario({"name": "toy", **tables})
    fleet, network = resolve(scenario), Dishonest(kind)
    toys = DishonestFleet(fleet, network, lambda step: STEP_S.get(step.kind, 0.0))
    toys.start()
    assert network.run(MAX_S, lambda: toys.finished), "it hangs"
    assert network.forged > 0
    check_texts(fleet, toys.outputs)
    if kind == HONEST:
        servers = [server for node in network.nodes.values() if (server := node.connections.server) is not None]
        assert not any(count for server in servers for count in server.counts.values())
        assert not any(row.event == "refusal" for row in toys.rows)
    assert [line for line in replay(make_run(scenario, "engine", toys.log, fleet)) if "log ends" not in line] == []
