"""Results of a calibration's stages, kept in a folder: a file a stage, sealed, and valid for one fingerprint."""

import datetime
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from specfleet.fleet.files import remove_files, write_file
from specfleet.fleet.inputs.format import FORMAT
from specfleet.fleet.records.run import versions_of
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.scenario import Scenario

T = TypeVar("T")
SUFFIX = ".stage"


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A file of a stage: what it holds for, its content, its date, what did not add up then, and a digest of these."""

    fingerprint: str
    digest: str
    content: bytes
    written: str
    notes: tuple[str, ...]


class Kept(msgspec.Struct, frozen=True):
    """The kept results of one calibration. Without a folder nothing is kept.

    - `fingerprint`: of all that the results depend on; others in the folder do not count.
    """

    folder: Path | None
    fingerprint: str = ""

    def read(self, stage: str, kind: type[T]) -> tuple[T, Sealed] | None:
        """Return a stage's result and its file; None where it is missing, damaged, or another calibration's."""
        sealed = self._sealed(stage)
        if sealed is None:
            return None
        with suppress(ValueError, msgspec.MsgspecError, pa.ArrowException):
            return msgspec.msgpack.decode(sealed.content, type=kind, dec_hook=_table_of), sealed
        return None

    def holds(self, stage: str) -> bool:
        """Return whether a stage's result is kept."""
        return self._sealed(stage) is not None

    def write(self, stage: str, result: Any, notes: Sequence[str] = ()) -> None:
        """Keep a stage's result, and notes on it; OutputError if it cannot be written."""
        if self.folder is not None:
            content = msgspec.msgpack.encode(result, enc_hook=_bytes_of)
            written, remarks = datetime.datetime.now(datetime.UTC).date().isoformat(), tuple(notes)
            sealed = Sealed(self.fingerprint, _digest_of(content, written, remarks), content, written, remarks)
            write_file(stage_file(self.folder, stage), msgspec.msgpack.encode(sealed))

    def _sealed(self, stage: str) -> Sealed | None:
        if self.folder is None:
            return None
        with suppress(OSError, ValueError, msgspec.MsgspecError):
            sealed = msgspec.msgpack.decode(stage_file(self.folder, stage).read_bytes(), type=Sealed)
            digest = _digest_of(sealed.content, sealed.written, sealed.notes)
            if (sealed.fingerprint, sealed.digest) == (self.fingerprint, digest):
                return sealed
        return None


def stage_file(folder: Path, stage: str) -> Path:
    """Return the file of a stage; what follows a colon in its name is no part of it.

    >>> stage_file(Path("pair.calibration"), "single steps again: off").name
    'single-steps-again.stage'
    """
    name = re.sub(r"\W+", "-", stage.partition(":")[0])
    return folder / f"{name}{SUFFIX}"


def fingerprint_of(scenario: Scenario, effort: msgspec.Struct, facts: Mapping[str, str]) -> str:
    """Fingerprint of all that a stage's result depends on: scenario, effort, versions, and facts of the host."""
    parts = (resume_digest(scenario), type(effort).__module__, effort, versions_of("engine"), dict(facts), FORMAT)
    return _digest(msgspec.json.encode(parts, order="deterministic"))


def clear(folder: Path) -> None:
    """Remove what a calibration has kept in its folder, and the folder if nothing else is in it."""
    remove_files(folder, f"*{SUFFIX}", "continuations-*.npz")


def _digest_of(content: bytes, written: str, notes: tuple[str, ...]) -> str:
    return _digest(msgspec.msgpack.encode((content, written, notes)))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _bytes_of(table: Any) -> bytes:
    """Encode the only content that msgspec does not know: the event table of a run."""
    if not isinstance(table, pa.Table):
        raise NotImplementedError(type(table))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)  # content in memory
    return bytes(sink.getvalue())


def _table_of(_kind: type, content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
