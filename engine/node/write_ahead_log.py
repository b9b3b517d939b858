"""Write-ahead logs of processes that a fault kills: each row is in a file before the process acts on it."""

import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from specfleet.engine.net.clock import now_s
from specfleet.fleet.policies.outcome import Token
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.scenario.workload import Request

_encoder = msgspec.msgpack.Encoder(enc_hook=lambda number: number.item())  # of numpy
_SIZE = struct.Struct("<I")  # of an entry; it precedes the entry


class Life(msgspec.Struct, frozen=True):
    """One life of a node's process.

    - `number`: how often it was killed before. `written`: rows of its earlier lives.
    - `finished`: requests with delivered texts.
    - `wal`: file of its write-ahead log, if a fault kills it.
    - `back_s`: when it is reachable again, by the engine's clock.
    """

    number: int = 0
    written: int = 0
    finished: frozenset[int] = frozenset()
    wal: Path | None = None
    back_s: float = 0.0

    def wait_until_back(self) -> None:
        """Wait until `back_s`, before the node has any connection; its process has loaded its model by then."""
        time.sleep(max(self.back_s - now_s(), 0.0))


FIRST = Life()


class Served(msgspec.Struct):
    """What a process has served: its rows, and of each finished request the new tokens, and signals of drafted ones.

    There are no tokens without a model, and signals of batches only.
    """

    log: Log
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]] = {}

    def add(self, later: "Served") -> None:
        """Add what a later life, or another process, has served."""
        self.log += later.log
        self.outputs |= later.outputs
        self.signals |= later.signals


class WriteAheadLog(list[Any]):
    """A log of one life; additions (`+=`) are in its file when they return."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __iadd__(self, values: Iterable[Any]) -> "WriteAheadLog":
        row = list(values)
        self._write(["rows", row])
        self.extend(row)
        return self

    def finished(self, request: int, tokens: Sequence[int]) -> None:
        """Write the text of a finished request."""
        self._write(["finished", request, list(tokens)])

    def _write(self, entry: list[object]) -> None:
        packed = _encoder.encode(entry)
        os.write(self.file, _SIZE.pack(len(packed)) + packed)


def open_log(life: Life) -> Log:
    """Return the log of a life, in a file if it has one."""
    return [] if life.wal is None else WriteAheadLog(life.wal)


def note_finished(log: Log, request: int, tokens: Sequence[int] = ()) -> None:
    """Write the text of a finished request, if the log has a file."""
    if isinstance(log, WriteAheadLog):
        log.finished(request, tokens)


def unfinished(streams: Mapping[int, Sequence[Request]], life: Life) -> dict[int, list[Request]]:
    """Return the unfinished requests of each stream that has any."""
    left = {
        tag: [request for request in requests if request.number not in life.finished]
        for tag, requests in streams.items()
    }
    return {tag: requests for tag, requests in left.items() if requests}


def read_log(path: Path) -> Served:
    """Read the log of a life; the last entry is dropped if it is incomplete."""
    kept = Served([], {})
    content = path.read_bytes() if path.exists() else b""
    place = 0
    while place + _SIZE.size <= len(content):
        (size,) = _SIZE.unpack_from(content, place)
        place += _SIZE.size + size
        if place > len(content):
            break
        what, *values = msgspec.msgpack.decode(content[place - size : place])
        if what == "rows":
            kept.log += (tuple(value) if isinstance(value, list) else value for value in values[0])
        else:
            kept.outputs[values[0]] = values[1]
    return kept
