"""Stages of a calibration: each is kept when it ends, is not measured again, and may find no memory or be left out.

A result is kept as a file in a folder, sealed, and valid for one fingerprint. No stage loads a model into this process:
models live in processes that end with their stage.
"""

import datetime
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from specfleet.calibration.measurements import Measurements
from specfleet.engine.launch.bodies import LESS_MEMORY
from specfleet.fleet.errors import DeviceMemoryError, InputError, NodeKilledError
from specfleet.fleet.files import remove_files, write_file
from specfleet.fleet.inputs.format import FORMAT
from specfleet.fleet.policies.shapes import CHAIN
from specfleet.fleet.records.run import versions_of
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.named_files import absolute
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.labels import MEANINGS, Missing

T = TypeVar("T")
Report = Callable[[str], None]
SUFFIX = ".stage"
LACKED = ", as Linux kills what has no memory"


def silent(_line: str) -> None:
    """Say nothing."""


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A file of a stage: its content, its date, what did not add up then; a digest of these and what they hold for."""

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
        if self.folder is None:
            return None
        with suppress(OSError, ValueError, msgspec.MsgspecError, pa.ArrowException):
            sealed = msgspec.msgpack.decode(stage_file(self.folder, stage).read_bytes(), type=Sealed)
            if sealed.digest == self._digest(sealed.content, sealed.written, sealed.notes):
                return msgspec.msgpack.decode(sealed.content, type=kind, dec_hook=_table_of), sealed
        return None

    def write(self, stage: str, result: Any, notes: Sequence[str] = ()) -> None:
        """Keep a stage's result, and notes on it; OutputError if it cannot be written."""
        if self.folder is not None:
            content = msgspec.msgpack.encode(result, enc_hook=_bytes_of)
            written, remarks = datetime.datetime.now(datetime.UTC).date().isoformat(), tuple(notes)
            sealed = Sealed(self._digest(content, written, remarks), content, written, remarks)
            write_file(stage_file(self.folder, stage), msgspec.msgpack.encode(sealed))

    def forget(self, stages: Iterable[str]) -> None:
        """Remove the results of stages, which the next try measures anew."""
        if self.folder is not None:
            remove_files(self.folder, *(stage_file(self.folder, stage).name for stage in stages))

    def _digest(self, content: bytes, written: str, notes: Sequence[str]) -> str:
        parts = (self.fingerprint, content, written, notes)
        return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


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
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def clear(folder: Path) -> None:
    """Remove what a calibration has kept in its folder, and the folder if nothing else is in it."""
    remove_files(folder, f"*{SUFFIX}", "continuations-*.npz")


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


class Asked(msgspec.Struct, frozen=True):
    """What a user asks of a calibration.

    - `without`: stages to leave out, by their names or the beginnings of these.
    - `accept_unsteady`: whether a fit that no steady host gives makes a profile, which then says so.
    """

    without: tuple[str, ...] = ()
    accept_unsteady: bool = False


USUAL = Asked()


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one calibration on this host.

    - `report`: is called with the name of each stage as it begins; `note` with lines on those left out.
    - `facts`: of this host. `asked`: by the user.
    - `left_out`: what the profile lacks, each with the reason. `kept_on`: dates of the stages of an earlier try.
    - `notes`: what did not add up in measurements, which append to it; each is kept with its stage.
    """

    kept: Kept
    report: Report = silent
    note: Report = silent
    facts: Mapping[str, str] = field(default_factory=dict)
    asked: Asked = USUAL
    left_out: dict[Missing, str] = field(default_factory=dict)
    kept_on: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def provenance(self) -> dict[str, str]:
        """What a profile says of its measurement: facts of the host, stages of an earlier try, the first note."""
        kept = f"{len(self.kept_on)} stages of an earlier try, of {', '.join(sorted(set(self.kept_on)))}"
        more = f"; and {len(self.notes) - 1} more" if len(self.notes) > 1 else ""
        return (
            dict(self.facts)
            | ({"kept": kept} if self.kept_on else {})
            | ({"notes": f"{self.notes[0]}{more}"} if self.notes else {})
        )

    def take(
        self, name: str, measure: Callable[[], Measurements], without: Missing | None = None
    ) -> Measurements | None:
        """Return the result of a stage, which is kept or is measured now; None if it is left out.

        It is left out if the user asks for that or memory is short; DeviceMemoryError then if the profile needs it.

        - `without`: what the profile lacks without this stage; None if it cannot do without.
        """
        self.report(name)
        if without is not None and name.startswith(self.asked.without):
            self._leave_out(name, without, "as asked")
            return None
        if (kept := self.kept.read(name, Measurements)) is not None:
            result, sealed = kept
            self.kept_on.append(sealed.written)
            self.notes.extend(sealed.notes)
            return result
        before = len(self.notes)
        try:
            result = measure()
        except (DeviceMemoryError, NodeKilledError) as error:
            what = str(error).partition(";")[0] + LACKED * isinstance(error, NodeKilledError)
            if without is None:
                raise DeviceMemoryError(f"{what}; {LESS_MEMORY}") from error
            self._leave_out(name, without, what)
            return None
        self.kept.write(name, result, self.notes[before:])
        return result

    def _leave_out(self, name: str, lacks: Missing, reason: str) -> None:
        self.left_out[lacks] = f"{name}: {reason}"
        self.note(f"left out: {self.left_out[lacks]}; the profile lacks {MEANINGS[lacks]}")

    def begin(self, names: Sequence[str], optional: Sequence[str]) -> None:
        """Say in one line how many of these stages are kept; InputError if one to leave out is not `optional`."""
        for asked in self.asked.without:
            if not asked or not any(name.startswith(asked) for name in optional):
                allowed = f"allowed are these names or their beginnings: {'; '.join(optional)}"
                raise InputError(f"without = {asked!r}: no stage that a profile can do without; {allowed}")
        if count := sum(self.kept.read(name, Measurements) is not None for name in names):
            anew = f"remove {self.kept.folder} to measure all anew"
            self.note(f"{count} of {len(names)} stages are kept from an earlier try; {anew}")


def provenance_of(scenario: Scenario) -> dict[str, str]:
    """Return the time, and the measured models and prompts by absolute paths, as a profile's provenance has them."""
    scenario = absolute(scenario)
    drafters = scenario.drafters
    return {
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "drafter_kind": drafters.kind,
        "drafter_model": drafters.model,
        **({} if drafters.shape == CHAIN else {"drafter_shape": str(drafters.shape)}),
        "target_model": scenario.verifiers.model,
        "precision": scenario.precision,
        "prompts_file": scenario.workload.prompts,
    }
