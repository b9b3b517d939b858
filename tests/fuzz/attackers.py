"""Attackers of a server: strangers, and dishonest peers with a seat and knowledge of the protocol."""

from collections.abc import Callable
from itertools import count

import numpy as np

from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import pack, parse
from specfleet.engine.net.handshake import Alive, Bye, Hello, Ping, Unknown, Welcome, terms_of
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Refusal
from tests.fuzz.frames import damaged, junk, out_of_place, wrong

RECENT = 32  # frames that an attacker repeats, whole or damaged


class Attacker:
    """Successive connections with frames drawn from `rng`; the next begins after a cut.

    - `number`: the seat that it requests; None for a stranger, which is never welcome.
    - `bad`: the share of bad frames after its welcome.
    """

    def __init__(self, fleet: Fleet, name: str, rng: np.random.Generator, number: int | None, bad: float) -> None:
        self.fleet, self.name, self.rng, self.number, self.bad = fleet, name, rng, number, bad
        self.lives = count()
        self.user = name if number is not None else ""
        self.recent: list[bytes] = []
        self.connect()

    def connect(self) -> None:
        """Begin a new connection."""
        self.life = next(self.lives)
        self.peer = f"{self.name}/{self.life}".encode()
        self.welcome = False
        self.request_sent: DraftRequest | None = None
        self.drafted = 0
        self.request, self.answered = 0, False

    def receive(self, frame: bytes) -> bool:
        """Take a frame of the server; False now and then: this attacker does not read it."""
        message, content = parse(frame)
        if isinstance(message, Welcome):
            self.welcome, self.request_sent = True, None
        elif isinstance(message, Draft) and self.request_sent is not None and message.epoch == self.request_sent.epoch:
            self.answered, self.drafted = True, len(content.tokens)
        elif isinstance(message, Refusal | Unknown):
            self.request_sent, self.welcome = None, self.welcome and isinstance(message, Refusal)
        return self.number is None or self.rng.random() < 0.999

    def next_frame(self) -> bytes:
        """Return its next frame."""
        hello = self.hello()
        if self.number is None:
            frame = self._drawn(hello, pack(Alive()))
        elif not self.welcome:
            frame = pack(hello) if self.rng.random() > self.bad else self._drawn(hello, pack(hello))
        elif self.rng.random() > self.bad:
            frame = self._as_it_should(hello)
        else:
            frame = self._drawn(hello, self._as_it_should(hello, keeps=True))
        self.recent = [*self.recent[-RECENT:], frame]
        return frame

    def hello(self) -> Hello:
        """The Hello of this connection; a stranger's requests an invalid seat."""
        number = self.number if self.number is not None else int(self.rng.integers(-1, 9))
        terms = terms_of(self.fleet) if self.number is not None else {"seed": "1"}
        return Hello("verifier", max(number, 0), self.life + 1, 0, terms)

    def _drawn(self, hello: Hello, right: bytes) -> bytes:
        """Return a frame of some bad kind."""
        rng = self.rng
        request = self.request_sent or DraftRequest(0, 1, 1, 9, opening=True)
        kinds: tuple[Callable[[], bytes], ...] = (
            lambda: junk(rng),
            lambda: damaged(rng, right),
            lambda: self.recent[rng.integers(len(self.recent))] if self.recent else right,
            lambda: damaged(rng, self.recent[rng.integers(len(self.recent))]) if self.recent else right,
            lambda: wrong(rng, request, Content([1] * (request.base if request.opening else 1))),
            lambda: out_of_place(rng, hello),
        )
        return kinds[rng.integers(len(kinds))]()

    def _as_it_should(self, hello: Hello, keeps: bool = False) -> bytes:
        """Return a frame that an honest target could send next; `keeps`: without a change of the conversation."""
        rng, request_sent = self.rng, self.request_sent
        if request_sent is None or (self.answered and rng.random() < 0.1):
            self.request = min(self.request + 1, self.fleet.workload.requests - 1)
            right = DraftRequest(0, self.request, 1 + self.life, 9, opening=True)
            content = Content([1] * 9)
        elif self.answered and request_sent.base + self.drafted < 30:
            taken = int(rng.integers(self.drafted + 1))
            right = DraftRequest(0, request_sent.request, request_sent.epoch + 1, request_sent.base + taken + 1)
            content = Content([1])
        else:
            quiet = (Alive(), Ping(0, 3), Leave(0, request_sent.request), Bye(), hello)
            said = quiet[rng.choice(len(quiet), p=[0.4, 0.3, 0.27, 0.01, 0.02])]
            if isinstance(said, Leave) and not keeps:
                self.request_sent = None
            return pack(said, NOTHING)
        if not keeps:
            self.request_sent, self.answered = right, False
        return pack(right, content)
