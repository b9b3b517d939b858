"""A finished run: its header and its event table, as one Parquet file."""

import hashlib
import os
import platform
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from specfleet.fleet.errors import InputError
from specfleet.fleet.files import replacing
from specfleet.fleet.inputs.format import FORMAT, Version, check_format
from specfleet.fleet.inputs.parquet import read_table
from specfleet.fleet.inputs.text import reason
from specfleet.fleet.interrupts import deferred
from specfleet.fleet.records.columns import Table, array_of, numbers_of
from specfleet.fleet.records.power import DeviceCurve
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.schema import LATER, SCHEMA
from specfleet.fleet.scenario.names import World
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.labels import warning_of

if TYPE_CHECKING:
    import pandas as pd  # only for frames


class RunHeader(msgspec.Struct, frozen=True):
    """Origin of a run. Host and start time are here, so that the rows of equal runs are equal.

    Keys:
        scenario: The scenario as it ran, its profile's numbers included.
        fleet: What the scenario was resolved to: stations, devices, links and times; `specfleet show` prints it.
        scenario_digest: Fingerprint of the scenario.
        profile_digest: Fingerprint of the profile's numbers; empty where there was none.
        world: "sim" for simulated time, "engine" for a run of the models.
        versions: Versions of Python and of the packages that the run rests on, by name.
        host: Machine type, operating system, byte order, cores and GPUs of the host.
        started_unix_s: When the run was written, in seconds since 1970.
        rows (rows): How many rows each station wrote, by its name, so that a log that was cut short shows.
        played_of: Digest of the measured run of which a simulation played parts back; empty if there was none.
        played: The parts: steps, acceptance, overhead, links.
        replayed: Stations of an engine run without a model, in place of absent hardware: drafters, targets.
        devices: Readings of the devices' counters; empty without measurement.
        path: How a simulation ran: "simpy", or "fast" for the compiled loop, which writes the same rows; empty for a
            run on the engine.
        engine: The engine of others that ran it, with its version; empty for our own.
        steps: Whether steps were seen; of a server only answers are.
        version (number): Format of the file. A file of another format is refused.
    """

    scenario: Scenario
    fleet: Fleet
    scenario_digest: str
    profile_digest: str
    world: World
    versions: dict[str, str]
    host: dict[str, str]
    started_unix_s: float
    rows: dict[str, int]
    played_of: str = ""
    played: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()
    devices: tuple[DeviceCurve, ...] = ()
    path: str = ""
    engine: str = ""
    steps: bool = True
    version: Version = FORMAT


class Run(msgspec.Struct, frozen=True):
    """A finished run: its header, and its event table (columns of SCHEMA), or the file that has it, if it was kept."""

    header: RunHeader
    kept: pa.Table | None
    file: str = ""

    @property
    def table(self) -> pa.Table:
        """Its event table; InputError if it was not kept."""
        if self.file:
            return read_run(Path(self.file)).kept
        if self.kept is None:
            raise InputError(
                f"scenario {self.header.scenario.name!r}: its rows were not kept, and this needs them; simulate with "
                "records = True, or -o FILE"
            )
        return self.kept

    def digest(self) -> str:
        """Fingerprint of the rows alone."""
        digest = hashlib.sha256()
        for name in SCHEMA.names:
            column = self.table.column(name)
            if name not in LATER or len(pc.list_flatten(column)):
                for values in _values_of(column):
                    digest.update(values[:-1] if isinstance(values, bytes) else values)
        return digest.hexdigest()[:16]

    @property
    def warning(self) -> str:
        """Warning of every result of this run: that its step times were estimated; empty if they were not."""
        return warning_of(self.header.fleet.basis_in(self.header.world))

    def columns(self) -> Table:
        """Return the rows as numpy columns, the input of metrics."""
        return Table.of_arrow(self.table)

    def frame(self) -> "pd.DataFrame":
        """Return the rows as a pandas frame."""
        return self.table.to_pandas()


def make_run(scenario: Scenario, world: World, log: Log, fleet: Fleet, gpus: int = 0, **header: Any) -> Run:
    """Assemble a run from the logs of all stations: by time, and within a station in its order.

    - `fleet`: the resolved scenario.
    - `gpus`: number of GPUs available to the run.
    - `header`: further fields of its header.
    """
    width = len(SCHEMA)
    arrays = [array_of(log[number::width], field.type) for number, field in enumerate(SCHEMA)]
    table = pa.table(arrays, schema=SCHEMA)
    time_s = numbers_of(table["time_s"])
    if np.any(time_s[1:] < time_s[:-1]):
        table = table.take(array_of(np.lexsort((numbers_of(table["seq"]), time_s)), pa.int64()))
    made = make_header(scenario, fleet, world, counted(table), gpus)
    return Run(msgspec.structs.replace(made, **header), table)


def counted(table: pa.Table) -> Counter[str]:
    """Return the number of rows of each station."""
    return Counter({count["values"]: count["counts"] for count in pc.value_counts(table["station"]).to_pylist()})


def make_header(scenario: Scenario, fleet: Fleet, world: World, rows: dict[str, int], gpus: int = 0) -> RunHeader:
    """Describe this host, these versions and this scenario; `rows` is the number of rows of each station."""
    return RunHeader(
        scenario=scenario,
        fleet=fleet,
        scenario_digest=scenario.digest(),
        profile_digest=fleet.profile_digest,
        world=world,
        versions=dict(versions_of(world)),
        host={
            "machine": platform.machine(),
            "system": platform.system(),
            "byte_order": sys.byteorder,
            "cores": str(os.cpu_count() or 1),
        }
        | ({"gpus": str(gpus)} if gpus else {}),
        started_unix_s=time.time(),
        rows=rows,
        replayed=fleet.replayed if world == "engine" else (),
    )


@cache
def versions_of(world: World) -> Mapping[str, str]:
    """Return the versions of Python and of the installed packages that a run in that world rests on, by name."""
    packages = ("specfleet", "simpy", "numpy") if world == "sim" else ("specfleet", "torch", "transformers", "pyzmq")
    versions = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


class RunWriter:
    """Writes a run's file as its rows come; each part of them is a row group, or several."""

    def __init__(self, file: pq.ParquetWriter) -> None:
        self.file, self.seal, self.rows = file, Seal(), Counter[str]()

    def take(self, rows: pa.Table) -> None:
        """Write rows behind those before. Signals that end the process are deferred meanwhile."""
        with deferred():
            self.seal.take(rows)
            self.rows += counted(rows)
            self.file.write_table(rows)

    def end(self, header: RunHeader) -> RunHeader:
        """Write and return the header, with the number of rows unless it has that."""
        header = msgspec.structs.replace(header, rows=header.rows or self.rows)
        content = msgspec.json.encode(header)
        self.file.add_key_value_metadata({"specfleet": content, "specfleet-digest": self.seal.of(content)})
        return header


@contextmanager
def writing_run(path: Path) -> Iterator[RunWriter]:
    """Write a run as one Parquet file, which is in its place when the body is done; OutputError if it cannot be."""
    with replacing(path) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True) as rows:
        yield RunWriter(rows)


def write_run(run: Run, path: Path) -> None:
    """Write a run as one Parquet file; OutputError if it cannot be written."""
    with deferred(), writing_run(path) as file:
        file.take(run.table)
        file.end(run.header)


def read_run(path: Path) -> Run:
    """Read a run; InputError if the file is missing, is not a run, or is damaged."""
    table = read_table(path, SCHEMA, "run", LATER)
    metadata = table.schema.metadata or {}
    if b"specfleet" not in metadata:
        raise InputError(f"{path}: a Parquet file, but not a run of specfleet (no header)")
    try:
        content = msgspec.json.decode(metadata[b"specfleet"])
        check_format(content, str(path), "run it again", unmarked=1)
        header = msgspec.convert(content, RunHeader)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        if rule := re.search(r"Invalid value '(.+)' - at `\$\.\w+\.(.+)\.policy`", str(error)):
            raise InputError(f"{path}: {rule[2]} = {rule[1]!r}: install the package that has this rule") from error
        raise InputError(f"{path}: written by another version of specfleet ({reason(error)}); run it again") from error
    run = Run(header, table.replace_schema_metadata(None))
    seal, known, content = Seal(), metadata.get(b"specfleet-digest"), metadata[b"specfleet"]
    seal.take(run.table)
    former = hashlib.sha256  # until 2026-11: of the header and the digest of the rows
    if known != seal.of(content) and known != former(content + run.digest().encode()).hexdigest().encode():
        raise InputError(f"{path}: its header or rows are not those that were written (digest); run it again")
    return run


class Seal:
    """Fingerprint of a run file's header and rows, to detect damage; in which parts the rows come does not matter."""

    def __init__(self) -> None:
        self.columns: defaultdict[tuple[str, int], Any] = defaultdict(hashlib.sha256)

    def take(self, rows: pa.Table) -> None:
        """Add rows behind those before."""
        for name in SCHEMA.names:
            for number, values in enumerate(_values_of(rows.column(name))):
                self.columns[name, number].update(values)

    def of(self, header: bytes) -> bytes:
        """Return the fingerprint of these rows and a header."""
        columns = b"".join(column.digest() for column in self.columns.values())
        return hashlib.sha256(header + columns).hexdigest().encode()


def _values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as bytes: a line for each word; the lengths of lists, then what they hold."""
    if pa.types.is_string(column.type):
        ends = array_of(["", "\n"], pa.string())  # pa.scalar would import pandas
        lines = pc.binary_join_element_wise(column, *ends).chunks
        return [b"".join(chunk.buffers()[2] for chunk in lines if len(chunk))]
    if pa.types.is_list(column.type):
        return [numbers_of(pc.list_value_length(column).cast(pa.int64())), numbers_of(pc.list_flatten(column))]
    return [numbers_of(column)]
