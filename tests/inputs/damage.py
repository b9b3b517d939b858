"""Damage to bytes and to places: what disks, editors, copies and typing do to a file."""

import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[bytes, random.Random], bytes]


def flipped(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content or b"x")
    for _ in range(rng.choice([1, 1, 2, 8])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) or 1)]


def beheaded(content: bytes, rng: random.Random) -> bytes:
    return content[rng.randrange(len(content) or 1) :]


def with_a_hole(content: bytes, rng: random.Random) -> bytes:
    first, second = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:first] + content[second:]


def inserted(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    what = rng.choice(
        [b"\xff", b"\x00", b"\x80\x81", b"\xed\xa0\x80", b'"', b"[", b"}", b"9", b"-", b"\n", b"\r", b"e9"]
    )
    return content[:place] + what + content[place:]


def overwritten(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) or 1)
    return content[:place] + rng.randbytes(rng.choice([1, 4, 64])) + content[place + 1 :]


def recoded(content: bytes, rng: random.Random) -> bytes:
    """What editors save: other encodings, byte order marks, other ends of lines."""
    text = content.decode("utf-8", errors="replace")
    return rng.choice(
        [
            text.encode("utf-16"),
            text.encode("utf-32"),
            b"\xef\xbb\xbf" + content,
            b"\xfe\xff" + content,
            content + "é".encode("latin-1"),
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b"\r"),
            content.replace(b'"', "”".encode()),
        ]
    )


def replaced(_content: bytes, rng: random.Random) -> bytes:
    return rng.choice(
        [
            b"", b"\n", b" " * 1000, b"\x00" * 4096, b"\xff" * 4096, rng.randbytes(4096), b"[]", b"{}", b"null", b"0",
            b'"text"', b"PAR1", b"PAR1" + bytes(64) + b"PAR1", b"\x89PNG\r\n\x1a\n", b"[" * 100_000, b'{"a":' * 100_000,
            b"a=" + b"[" * 100_000, b"a" * 1_000_000, b"9" * 100_000, b"a.b" * 10_000 + b" = 1",
        ]
    )  # fmt: skip


def doubled(content: bytes, rng: random.Random) -> bytes:
    return content * rng.choice([2, 3])


def line_lost(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    lines.pop(rng.randrange(len(lines)))
    return b"\n".join(lines)


def lines_swapped(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


DAMAGES: tuple[Damage, ...] = (
    flipped, flipped, cut, cut, beheaded, with_a_hole, inserted, inserted, overwritten, recoded, replaced, doubled,
    line_lost, lines_swapped,
)  # fmt: skip


def misplaced(path: Path, rng: random.Random) -> str:
    """Put something else where a file was, and say what."""
    path.unlink()
    what = rng.choice(["absent", "folder", "dangling link", "circle of links"])
    if what == "folder":
        path.mkdir()
    elif what == "dangling link":
        path.symlink_to("nowhere")
    elif what == "circle of links":
        path.symlink_to(path)
    return what
