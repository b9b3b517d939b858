"""Sound targets and broken peers at one drafter in memory, with the laws that hold then."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specfleet.engine.net.actions import SERVER_PORT, ReceivedFrame, Send
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import pack, parse
from specfleet.engine.net.handshake import Alive, Bye, Hello, Unknown, Welcome, terms_of
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import make_run
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Refusal, StationEvent
from specfleet.fleet.times.step import Step
from tests.fakes.network import FakeNetwork
from tests.fuzz.frames import damaged, junk, out_of_place, wrong
from tests.helpers.toy_fleets import ToyFleet
from tests.helpers.toys import ToyDrafter, truth

SHARES = 0.02, 0.6  # of bad frames of the two broken peers
SOUND, BROKEN = 2, len(SHARES)
REQUESTS, PROMPT, NEW = 520, 8, 24
SCENARIO = make_scenario(
    {
        "name": "toy", "verifiers": {"count": SOUND + BROKEN}, "drafters": {"depth": 4},
        "workload": {"requests": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW},
    }
)  # fmt: skip
FLEET = resolve(SCENARIO)
BEGIN_S, LASTS_S, LIMIT_S = 0.1, 20.0, 600.0  # sound targets alone take 21 s
RECENT = 32  # frames that a peer repeats, whole or damaged


class BrokenPeer:
    """A target's end that sends frames drawn from `rng`, a share `bad` of which it must not send."""

    def __init__(self, number: int, rng: np.random.Generator, bad: float) -> None:
        self.rng, self.bad = rng, bad
        self.peer = f"broken {number}".encode()
        self.hello = Hello("verifier", number, 1, 0, terms_of(FLEET))
        self.recent: list[bytes] = []
        self.welcome = self.answered = False
        self.asked: DraftRequest | None = None
        self.drafted = self.request = 0

    def receive(self, frame: bytes) -> bool:
        """Take a frame of the server; False now and then: it does not read it."""
        message, content = parse(frame)
        if isinstance(message, Welcome):
            self.welcome, self.asked = True, None
        elif isinstance(message, Draft) and self.asked is not None and message.epoch == self.asked.epoch:
            self.answered, self.drafted = True, len(content.tokens)
        elif isinstance(message, Refusal | Unknown):
            self.asked, self.welcome = None, self.welcome and isinstance(message, Refusal)
        return bool(self.rng.random() < 0.999)

    def next_frame(self) -> bytes:
        """Return its next frame."""
        is_bad = self.rng.random() < self.bad
        if not self.welcome:
            frame = self._drawn(pack(self.hello)) if is_bad else pack(self.hello)
        else:
            frame = self._drawn(self._as_it_should(keeps=True)) if is_bad else self._as_it_should()
        self.recent = [*self.recent[-RECENT:], frame]
        return frame

    def _drawn(self, right: bytes) -> bytes:
        """Return a frame of some bad kind."""
        rng, request = self.rng, self.asked or DraftRequest(0, 1, 1, 9, opening=True)
        before = self.recent[rng.integers(len(self.recent))] if self.recent else right
        kinds: tuple[Callable[[], bytes], ...] = (
            lambda: junk(rng),
            lambda: damaged(rng, right),
            lambda: before,
            lambda: damaged(rng, before),
            lambda: wrong(rng, request, Content([1] * (request.base if request.opening else 1))),
            lambda: out_of_place(rng, self.hello),
        )
        return kinds[rng.integers(len(kinds))]()

    def _as_it_should(self, keeps: bool = False) -> bytes:
        """Return a frame that a sound target could send next; `keeps`: without a change of the conversation."""
        rng, asked = self.rng, self.asked
        if asked is None or (self.answered and rng.random() < 0.1):
            self.request = min(self.request + 1, REQUESTS - 1)
            right, content = DraftRequest(0, self.request, 1, 9, opening=True), Content([1] * 9)
        elif self.answered and asked.base + self.drafted < 30:
            taken = int(rng.integers(self.drafted + 1))
            right = DraftRequest(0, asked.request, asked.epoch + 1, asked.base + taken + 1)
            content = Content([1])
        else:
            quiet = (Alive(), Leave(0, asked.request), Bye(), self.hello)
            said = quiet[rng.choice(len(quiet), p=[0.7, 0.27, 0.01, 0.02])]
            if isinstance(said, Leave) and not keeps:
                self.asked = None
            return pack(said, NOTHING)
        if not keeps:
            self.asked, self.answered = right, False
        return pack(right, content)


class FuzzNetwork(FakeNetwork):
    """A network with answers to broken peers, by their routing ids."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.broken: dict[bytes, BrokenPeer] = {}

    def send(self, name: str, send: Send) -> bool:
        peer = self.broken.get(send.peer)
        return super().send(name, send) if peer is None else peer.receive(send.frame)


class FuzzedDrafter(ToyDrafter):
    """A toy drafter that checks the requests of sound targets alone, as a model would check none."""

    def receive(self, event: StationEvent, content: Content) -> None:
        if not isinstance(event, DraftRequest):
            return
        if FLEET.target_of(event.tag) < SOUND:
            super().receive(event, content)
        else:
            self.texts[event.tag] = event.request, [1] * event.base

    def run(self, step: Step) -> tuple[Outcome, ...]:
        assert all(member.tag in self.texts for member in step.members)
        return super().run(step)


class FuzzedFleet(ToyFleet):
    """Only its sound targets are started."""

    def __init__(self, network: FuzzNetwork) -> None:
        super().__init__(FLEET, network)
        self.targets, self.drafter = range(SOUND), FuzzedDrafter()

    def new_drafter(self, _drafter: int) -> FuzzedDrafter:
        return self.drafter


@dataclass
class Found:
    """Texts of the sound targets, the whole log, and what the server counted of so many frames that were sent."""

    outputs: list[dict[int, list[int]]]
    log: Log
    counts: dict[str, int]
    sent: int = 0


def serve_beside_broken(messages: int, seed: int) -> Found:
    """Serve the sound targets while broken peers send `messages` frames in all."""
    network = FuzzNetwork(seed)
    fleet = FuzzedFleet(network)
    fleet.start()
    node = network.nodes["drafter"]
    server = node.connections.server
    assert server is not None
    peers = [BrokenPeer(SOUND + index, np.random.default_rng([seed, index]), bad) for index, bad in enumerate(SHARES)]
    network.broken = {peer.peer: peer for peer in peers}
    found = Found(fleet.outputs, fleet.log, server.counts)

    def send_next() -> None:
        peer = peers[found.sent % BROKEN]
        found.sent += 1
        node.arrive(ReceivedFrame(SERVER_PORT, peer.peer, peer.next_frame(), network.now_s))
        if found.sent < messages:
            network.at(network.now_s + LASTS_S / messages, send_next)

    network.at(BEGIN_S, send_next)

    def finished() -> bool:
        return found.sent >= messages and all(network.nodes[verifier_name(number)].finished for number in range(SOUND))

    assert network.run(LIMIT_S, finished), f"hangs after {found.sent} messages, seed {seed}"
    return found


def check(found: Found) -> None:
    """Every text of a sound target is the truth, and the log replays."""
    for target, life in enumerate(found.outputs):
        assert life.keys() == set(range(target, REQUESTS, SOUND + BROKEN))
        for request, text in life.items():
            assert text == truth(request, PROMPT, PROMPT + NEW)
    run = make_run(SCENARIO, "engine", found.log, FLEET)
    assert [line for line in replay(run) if "log ends" not in line] == []
