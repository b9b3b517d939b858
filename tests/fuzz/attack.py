"""Honest targets and attackers at one drafter in memory, with the laws that hold then."""

from dataclasses import dataclass, field

import numpy as np

from specfleet.engine.net.actions import SERVER_PORT, ReceivedFrame, Send
from specfleet.engine.net.content import Content
from specfleet.engine.net.server import STRANGERS
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import make_run
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import DraftRequest, StationEvent
from specfleet.fleet.times.step import Step
from tests.fakes.network import FakeNetwork
from tests.fuzz.attackers import Attacker
from tests.helpers.toy_fleets import ToyFleet
from tests.helpers.toys import ToyDrafter, seconds_of, truth

SLY, RUDE = 0.02, 0.6  # shares of bad frames of attackers
HONEST, DISHONEST = 2, 2  # honest targets, and dishonest peers with a seat
REQUESTS, PROMPT, NEW = 520, 8, 24
SCENARIO = make_scenario(
    {
        "name": "toy", "verifiers": {"count": HONEST + DISHONEST}, "drafters": {"depth": 4},
        "workload": {"requests": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW},
    }
)  # fmt: skip
FLEET = resolve(SCENARIO)
BEGIN_S, ATTACKED_S, LIMIT_S = 0.1, 20.0, 600.0  # honest targets alone take 21 s


class FuzzNetwork(FakeNetwork):
    """A network with answers to attackers. `attackers`: by their current peer."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.attackers: dict[bytes, Attacker] = {}

    def send(self, name: str, send: Send) -> bool:
        attacker = self.attackers.get(send.peer)
        if attacker is None:
            return super().send(name, send)
        return attacker.receive(send.frame)

    def cut(self, server: str, peer: bytes) -> None:
        attacker = self.attackers.pop(peer, None)
        if attacker is None:
            super().cut(server, peer)
            return
        attacker.connect()
        self.attackers[attacker.peer] = attacker


class FuzzedDrafter(ToyDrafter):
    """A toy drafter that believes attackers, as a model would, and checks the requests of honest targets.

    `spent_s`: its working time for attackers.
    """

    spent_s = 0.0

    def receive(self, event: StationEvent, content: Content) -> None:
        if not isinstance(event, DraftRequest):
            return
        if FLEET.target_of(event.tag) < HONEST:
            super().receive(event, content)
        else:
            self.texts[event.tag] = event.request, [1] * event.base

    def run(self, step: Step) -> tuple[Outcome, ...]:
        assert all(member.tag in self.texts for member in step.members)
        self.spent_s += seconds_of(step) * (FLEET.target_of(step.members[0].tag) >= HONEST)
        return super().run(step)


@dataclass
class Found:
    """The result of an attack. `ends_s`: the end of each honest target; `weights`: sizes of the server."""

    outputs: list[dict[int, list[int]]]
    log: Log
    ends_s: list[float]
    counts: dict[str, int]
    weights: list[int] = field(default_factory=list)
    sent: int = 0
    spent_s: float = 0.0  # by the drafter on steps for attackers


def attack(messages: int, strangers: int, dishonest: bool, seed: int) -> Found:
    """Serve the honest targets while attackers send `messages` frames in all."""
    network = FuzzNetwork(seed)
    fleet = AttackedFleet(network)
    fleet.start()
    node = network.nodes["drafter"]
    server = node.connections.server
    assert server is not None
    numbers: list[int | None] = [None] * strangers
    numbers += range(HONEST, HONEST + DISHONEST) if dishonest else []
    attackers = [
        Attacker(
            FLEET, f"attacker {index}", np.random.default_rng([seed, index]), number, bad=RUDE if index % 2 else SLY
        )
        for index, number in enumerate(numbers)
    ]
    network.attackers = {attacker.peer: attacker for attacker in attackers}
    found = Found(fleet.outputs, fleet.log, [float("inf")] * HONEST, server.counts)

    def strike() -> None:
        """Send a frame of one attacker, and schedule the next."""
        attacker = attackers[found.sent % len(attackers)]
        found.sent += 1
        frame = attacker.next_frame()
        node.arrive(ReceivedFrame(SERVER_PORT, attacker.peer, frame, network.now_s, attacker.user))
        if found.sent % 1000 == 0:
            found.weights.append(weight(server))
        if found.sent < messages:
            network.at(network.now_s + every_s, strike)

    every_s = ATTACKED_S / max(messages, 1)
    if attackers:
        network.at(BEGIN_S, strike)

    def finished() -> bool:
        for target in range(HONEST):
            if network.nodes[verifier_name(target)].finished:
                found.ends_s[target] = min(found.ends_s[target], network.now_s)
        return max(found.ends_s) < float("inf") and found.sent >= messages * bool(attackers)

    assert network.run(LIMIT_S, finished), f"hangs after {found.sent} messages, seed {seed}"
    found.spent_s = fleet.drafter.spent_s
    return found


class AttackedFleet(ToyFleet):
    """Only its honest targets are started."""

    def __init__(self, network: FuzzNetwork) -> None:
        super().__init__(FLEET, network)
        self.targets, self.drafter = range(HONEST), FuzzedDrafter()

    def new_drafter(self, _drafter: int) -> FuzzedDrafter:
        return self.drafter


def check(found: Found) -> None:
    """Every honest text is the truth, the log replays, and the server's memory is bounded."""
    for target, life in enumerate(found.outputs):
        assert life.keys() == set(range(target, REQUESTS, HONEST + DISHONEST))
        for request, text in life.items():
            assert text == truth(request, PROMPT, PROMPT + NEW)
    run = make_run(SCENARIO, "engine", found.log, FLEET)
    assert [line for line in replay(run) if "log ends" not in line] == []
    assert max(found.weights, default=0) <= 12 * STRANGERS + 200 * (HONEST + DISHONEST)


def weight(thing: object) -> int:
    """Count the parts of an object, at all depths, without those of the fleet."""
    visited: set[int] = set()

    def held_by(thing: object) -> int:
        if id(thing) in visited or isinstance(thing, str | bytes | int | float | None):
            return 0
        visited.add(id(thing))
        if isinstance(thing, dict):
            return len(thing) + sum(map(held_by, thing.values()))
        if isinstance(thing, list | tuple | set | frozenset):
            return len(thing) + sum(map(held_by, thing))
        names = [
            name for fields in ("__dict__", "__slots__", "__struct_fields__") for name in getattr(thing, fields, ())
        ]
        return sum(held_by(getattr(thing, name, None)) for name in names if name not in {"fleet", "bounds", "terms"})

    return held_by(thing)
