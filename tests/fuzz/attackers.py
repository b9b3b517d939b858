"""Who attacks a server: strangers, and dishonest peers who have a seat and know how to talk."""

from collections.abc import Callable
from itertools import count

import numpy as np

from engine.net.content import NOTHING, Content
from engine.net.frames import pack, parse
from engine.net.handshake import Alive, Bye, Hello, Ping, Unknown, Welcome, terms_of
from fleet.scenario.resolved import Fleet
from fleet.stations.messages import Draft, DraftRequest, Leave, Refusal
from tests.fuzz.frames import damaged, junk, out_of_place, wrong

RECENT = 32  # frames that an attacker repeats, whole or damaged


class Attacker:
    """A connection after the other, each with frames drawn from `rng`; the next begins when one is cut.

    `number`: the seat that it asks for, or None for a stranger, who never says a Hello that is welcome. `bad`: the
    share of bad frames in what it says once it is welcome.
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
        self.told: DraftRequest | None = None
        self.drafted = 0
        self.request, self.answered = 0, False

    def hears(self, frame: bytes) -> bool:
        """Take what the server says; False now and then: this one does not read."""
        message, content = parse(frame)
        if isinstance(message, Welcome):
            self.welcome, self.told = True, None
        elif isinstance(message, Draft) and self.told is not None and message.epoch == self.told.epoch:
            self.answered, self.drafted = True, len(content.tokens)
        elif isinstance(message, Refusal | Unknown):
            self.told, self.welcome = None, self.welcome and isinstance(message, Refusal)
        return self.number is None or self.rng.random() < 0.999

    def says(self) -> bytes:
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
        """The Hello of this connection; a stranger's asks for what it cannot have."""
        number = self.number if self.number is not None else int(self.rng.integers(-1, 9))
        terms = terms_of(self.fleet) if self.number is not None else {"seed": "1"}
        return Hello("verifier", max(number, 0), self.life + 1, 0, terms)

    def _drawn(self, hello: Hello, right: bytes) -> bytes:
        """Return a frame of some bad kind."""
        rng = self.rng
        request = self.told or DraftRequest(0, 1, 1, 9, opening=True)
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
        """Return what an honest target could say next; `keeps`: without going on by it."""
        rng, told = self.rng, self.told
        if told is None or (self.answered and rng.random() < 0.1):
            self.request = min(self.request + 1, self.fleet.workload.requests - 1)
            right = DraftRequest(0, self.request, 1 + self.life, 9, opening=True)
            content = Content([1] * 9)
        elif self.answered and told.base + self.drafted < 30:
            taken = int(rng.integers(self.drafted + 1))
            right = DraftRequest(0, told.request, told.epoch + 1, told.base + taken + 1)
            content = Content([1])
        else:
            quiet = (Alive(), Ping(0, 3), Leave(0, told.request), Bye(), hello)
            said = quiet[rng.choice(len(quiet), p=[0.4, 0.3, 0.27, 0.01, 0.02])]
            if isinstance(said, Leave) and not keeps:
                self.told = None
            return pack(said, NOTHING)
        if not keeps:
            self.told, self.answered = right, False
        return pack(right, content)
