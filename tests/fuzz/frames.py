"""Frames that no sound target sends: junk, damage, and well-formed but wrong ones."""

from collections.abc import Callable

import msgspec
import numpy as np

from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import HEADER, MAGIC, VERSION, pack
from specfleet.engine.net.handshake import Alive, Bye, Denied, Hello, Unknown, Welcome
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Refusal, View

EXTREMES = (-1, 0, 1, 2, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, -(2**31))
Random = np.random.Generator


def junk(rng: Random) -> bytes:
    """Random bytes, sometimes with the beginning of another protocol, sometimes many."""
    begins = (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\0\0\0\0\0\0\0\1\x7f",
        MAGIC,
        MAGIC + bytes([VERSION]),
        b"\x16\x03\x01",
    )
    size = int(rng.choice([0, 1, HEADER.size - 1, HEADER.size, 64, 400, 4000]))
    return begins[rng.integers(len(begins))] + rng.bytes(size)


def damaged(rng: Random, frame: bytes) -> bytes:
    """A frame with some bytes changed, cut out, put in, or cut off."""
    piece = bytearray(frame)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(piece) + 1))
        match rng.integers(5):
            case 0 if place < len(piece):
                piece[place] ^= 1 << int(rng.integers(8))
            case 1:
                del piece[place : place + int(rng.integers(1, 9))]
            case 2:
                piece[place:place] = rng.bytes(int(rng.integers(1, 9)))
            case 3:
                del piece[place:]
            case _ if len(piece) >= HEADER.size:
                _lie(rng, piece)
    return bytes(piece)


def _lie(rng: Random, piece: bytearray) -> None:
    """Let a header promise content that the frame does not have."""
    fields = list(HEADER.unpack_from(piece))
    which = int(rng.integers(2, len(fields)))
    most = 255 if which == 2 else 2**32 - 1
    fields[which] = min(max(int(rng.choice(EXTREMES)), 0), most)
    piece[: HEADER.size] = HEADER.pack(*fields)


def wrong(rng: Random, right: DraftRequest, content: Content) -> bytes:
    """A request with a wrong number or content; it can be packed."""
    changes: tuple[Callable[[], tuple[DraftRequest, Content]], ...] = (
        lambda: (_changed(rng, right, "tag"), content),
        lambda: (_changed(rng, right, "request"), content),
        lambda: (_changed(rng, right, "epoch"), content),
        lambda: (_changed(rng, right, "base"), content),
        lambda: (_changed(rng, right, "tokens"), content),
        lambda: (_changed(rng, right, "priority"), content),
        lambda: (msgspec.structs.replace(right, opening=not right.opening), content),
        lambda: (right, msgspec.structs.replace(content, tokens=[*content.tokens, 1])),
        lambda: (right, msgspec.structs.replace(content, tokens=[*content.tokens][:-1])),
        lambda: (right, msgspec.structs.replace(content, tokens=[2**31 - 1] * len(content.tokens))),
        lambda: (right, msgspec.structs.replace(content, tokens=[-5] * len(content.tokens))),
        lambda: (right, msgspec.structs.replace(content, nodes=[1, 5, 2])),
        lambda: (right, msgspec.structs.replace(content, hidden=np.full((2, 3), np.nan, "<f2"))),
        lambda: (right, msgspec.structs.replace(content, distributions=np.ones((1, 4), "<f2"), rule="rejection")),
        lambda: (right, Content([3] * 60_000)),
    )
    message, changed = changes[rng.integers(len(changes))]()
    return pack(message, changed)


def out_of_place(rng: Random, hello: Hello) -> bytes:
    """A well-formed frame that its sender must not send at this point."""
    number = int(rng.integers(-1, 5))
    said = (
        Draft(number, 0, 1, 9, 4), Refusal(number, 0, "no"), View(number, 0, 3), Welcome(0), Denied(0, "no"),
        Unknown(), Alive(), Bye(), Leave(number, 3), DraftRequest(number, 0, 1, 9, opening=True),
        DraftRequest(number, 0, 5, 12), msgspec.structs.replace(hello, number=number),
        msgspec.structs.replace(hello, attempt=int(rng.integers(100))), msgspec.structs.replace(hello, role="router"),
        msgspec.structs.replace(hello, terms={"a" * 150: "b" * 150, "\x1b[31m": "\n"}),
        Welcome(1), Draft(number, 1, 2, 12, 3), View(number, 1, 0),
    )  # fmt: skip
    message = said[rng.integers(len(said))]
    return pack(message, Content([1] * 9) if isinstance(message, DraftRequest) else NOTHING)


def _changed(rng: Random, request: DraftRequest, field: str) -> DraftRequest:
    value = getattr(request, field) + int(rng.integers(-2, 3)) if rng.random() < 0.5 else int(rng.choice(EXTREMES))
    return msgspec.structs.replace(request, **{field: value})
