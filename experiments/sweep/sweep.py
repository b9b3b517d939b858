"""Sweep any keys of a scenario over values, in either world; one result file a cell, and only missing ones are run."""

import hashlib
import io
import itertools
import logging
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from specfleet.experiments.console.printing import case_text, value_label
from specfleet.experiments.jobs import ALL, Workers, as_finished
from specfleet.experiments.sweep.cell import ANALYTIC, Cell, CellResult, run_cell
from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.files import replacing, write_json
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import is_file, read_json, read_text, reason, shortened
from specfleet.fleet.interrupts import deferred
from specfleet.fleet.records.metrics.window import with_percentiles
from specfleet.fleet.scenario.changes import parse_value, parts_of, plain
from specfleet.fleet.scenario.fingerprint import resume_digest
from specfleet.fleet.scenario.names import SimPath, World
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.shown import ends

Vary = Mapping[str, Iterable[Any]] | Sequence[str]
"""Values by dotted key, or texts such as `verifiers.count=1:16`."""

LOG = logging.getLogger("specfleet")
MAX_CELLS = 100_000
RANGE = r"\s*-?\d{1,18}\s*:\s*-?\d{1,18}\s*(:\s*-?\d{1,18}\s*)?"
NO_RANGE = r"\d+\s*-\s*\d+|-?[\d.][\w.-]*(\s*:\s*-?[\d.][\w.-]*){1,2}"  # 1-8, 1ms:3ms
LONGEST_NAME = 200  # file systems take 255 bytes
TABLE = "sweep.csv"
RECORD = "sweep.json"  # what reads the sweep begins here
COLUMNS = (  # after the varied keys
    "world", "basis", "quantity", "value", "low", "high", "unit", "times_longer", "drifting",
)  # fmt: skip
NUMBERS = ("value", "low", "high")
MISSING = {"value": math.nan, "low": math.nan, "high": math.nan, "times_longer": math.inf}  # null in JSON
PIECE = 200  # cells of the table that are in memory at once


class SweepRecord(msgspec.Struct, frozen=True):
    """The last sweep of a folder: the first cell's scenario, and file and scenario's digest of each cell."""

    scenario: Scenario
    world: World
    seeds: int
    cells: list[tuple[str, str]]


def parse_vary(text: str) -> tuple[str, list[Any]]:
    """Read `key=1:16`, `key=1:16:5` (both ends included) or `key=a,b,c`; InputError for anything else."""
    key, separator, values = (part.strip() for part in text.partition("="))
    shown = shortened(text, quoted=False)
    if not key or not separator or not values:
        raise InputError(f"--vary {shown}: write KEY=FIRST:LAST[:STEP] or KEY=A,B,C, for example verifiers.count=1:16")
    if re.fullmatch(RANGE, values):
        first, last, *steps = map(int, values.split(":"))
        step = steps[0] if steps else 1
        chosen = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
        if not 1 <= len(chosen) <= MAX_CELLS:
            raise InputError(f"--vary {shown}: {len(chosen)} values; allowed: 1 to {MAX_CELLS}; steps below 0 go down")
        return key, list(chosen)
    if re.fullmatch(NO_RANGE, values):
        raise InputError(f"--vary {shown}: write whole numbers as FIRST:LAST[:STEP], others one by one as A,B,C")
    return key, [parse_value(part) for part in parts_of(values)]


def vary_of(vary: Vary, stated: Iterable[str] = ()) -> dict[str, list[Any]]:
    """Return the values to vary as lists of plain values by dotted key.

    - `stated`: keys that have one value for all cells.

    Raises InputError for a text that says no values, and for a key that is stated, too.

    >>> vary_of(["verifiers.count=1:3"])
    {'verifiers.count': [1, 2, 3]}
    """
    if not isinstance(vary, Mapping):
        pairs = list(map(parse_vary, [vary] if isinstance(vary, str) else vary))
        if twice := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
            raise InputError(f"--vary {twice[0]}: stands twice; give all its values at once, {twice[0]}=A,B,C")
        vary = dict(pairs)
    axes = dict[str, list[Any]]()
    for key, values in vary.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable) or not (listed := [*values]):
            raise InputError(f"vary: {key} = {values!r}: needs a list of values, one or more")
        axes[key] = plain(listed)
    if both := [key for key in stated if key in axes]:
        raise InputError(f"--set {both[0]}: --vary gives its values; leave one of them out")
    return axes


def cells_of(vary: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the varied values, given by dotted key; InputError for more than MAX_CELLS."""
    axes = {key: list(values) for key, values in vary.items()}
    count = math.prod(map(len, axes.values()))
    if not 1 <= count <= MAX_CELLS:
        raise InputError(f"--vary {', '.join(axes)}: {count} combinations; allowed: 1 to {MAX_CELLS}")
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def distinct(cells: Iterable[tuple[Cell, Scenario]]) -> list[tuple[Cell, Scenario]]:
    """Return the cells; InputError for two of one scenario, such as of 45ms and 0.045."""
    cells, alike = list(cells), dict[str, Cell]()
    for cell, scenario in cells:
        if (same := alike.setdefault(scenario.digest(), cell)) is not cell:
            raise InputError(f"--vary {case_text(cell)}: is the same as {case_text(same)}; leave one of them out")
    return cells


def cell_file(folder: Path, cell: Cell) -> Path:
    """Return where a cell's result lives; its name says what varies."""
    name = ",".join(f"{key}={value}" for key, value in cell.items()).replace("/", "%2F") or "cell"
    if len(name.encode()) > LONGEST_NAME:  # whole tables were varied
        name = hashlib.sha256(name.encode()).hexdigest()[:16]
    return folder / "cells" / f"{name}.json"


def sweep(
    cells: Iterable[tuple[Cell, Scenario]],
    folder: Path | None = None,
    world: World = "sim",
    seeds: int = 3,
    workers: Workers = 1,
    done: Callable[[CellResult], None] = lambda _result: None,
    path: SimPath = "auto",
    power: bool = False,
    shard: slice = ALL,
) -> list[CellResult]:
    """Run all cells and return their results in order, failed ones included; `done` is called after each.

    `path`: how to simulate cells; results are the same. `power`: whether the engine samples its devices. `shard`: the
    cells to run, by their places; the table is left to the sweep of all.

    With a folder, results stay there. A cell does not run again if its file is there for the same scenario, file
    contents, world and seeds, unless it failed; failures of earlier sweeps go. Table and record keep cells of earlier
    sweeps that differ in values of the varied keys alone. The engine runs one cell at a time, because two would slow
    each other down. Raises InputError, before any cell runs, if a folder is in the place of a file of results.
    """
    planned, results = list(cells), dict[int, CellResult]()
    if folder:
        for file in (folder / TABLE, folder / RECORD, *(cell_file(folder, cell) for cell, _ in planned)):
            if file.is_dir():
                raise InputError(f"{file}: is a folder, where results belong; remove it, or name another for the sweep")
        digests = [(cell_file(folder, cell).name, resume_digest(scenario)) for cell, scenario in planned]
        record = SweepRecord(planned[0][1], world, seeds, digests)
        for place, kept in list(enumerate(_kept(folder, record)))[shard]:
            if kept is not None and not kept.error and kept.power >= power:
                results[place] = kept
                done(msgspec.structs.replace(kept, found=True))
        if 0 < len(results) < len(planned[shard]):
            LOG.warning("%s: %d of %d cells were there and do not run again", folder, len(results), len(planned[shard]))
    places = [place for place in range(len(planned))[shard] if place not in results]
    arguments = {place: (*planned[place], world, seeds, path, power) for place in places}
    if isinstance(workers, int):
        workers = 1 if world == "engine" else min(workers, len(places))
    try:
        if folder:
            earlier = _earlier(folder, record, *planned[0])
            write_json(msgspec.structs.replace(record, cells=digests + list(earlier)), folder / RECORD)
            results |= enumerate(earlier.values(), len(planned))  # behind those that were asked for
        _run_missing(arguments, results, folder, workers, done, shard == ALL)
    except OutputError as error:
        error.result = _in_order(results, len(planned))
        raise
    return _in_order(results, len(planned))


def _run_missing(
    arguments: Mapping[int, tuple[Any, ...]],
    results: dict[int, CellResult],
    folder: Path | None,
    workers: Workers,
    done: Callable[[CellResult], None],
    tables: bool,
) -> None:
    """Run cells, given by their places, and add their results; a folder keeps each, and their table at the end."""
    running, places = as_finished(run_cell, arguments.values(), workers), list(arguments)
    try:
        with closing(running) as finished:
            for number, result in finished:
                with deferred():  # what is kept is counted, too
                    results[places[number]] = result
                    if folder:
                        content = msgspec.json.decode(msgspec.json.encode(result))
                        sealed = {**content, "digest": _digest(content)}
                        write_json(sealed, cell_file(folder, result.cell), synced=False)
                    done(result)
    except KeyboardInterrupt:  # in Python; the command line has its own
        ran = sum(place in results for place in places)
        LOG.warning("interrupted: %d of %d cells ran, kept in %s", ran, len(places), folder or "no folder: give `out`")
        raise
    finally:
        if folder and tables and results:
            _keep_table(folder, results)


def _earlier(folder: Path, record: SweepRecord, cell: Cell, scenario: Scenario) -> dict[tuple[str, str], CellResult]:
    """Return what a folder keeps of earlier sweeps and this one leaves out, by file and digest.

    As far as the scenarios are this one's with other values of its varied keys; says how many are no longer shown.
    """
    if not is_file(folder / RECORD):
        return {}
    before = convert(read_json(folder / RECORD), SweepRecord, str(folder / RECORD))
    kept, known = zip(before.cells, _kept(folder, before), strict=True), set(itertools.chain(*record.cells))
    others = {entry: result for entry, result in kept if known.isdisjoint(entry) and result and not result.error}
    alike = {}
    for entry, result in others.items():
        with suppress(InputError):
            same = (before.world, before.seeds, cell.keys()) == (record.world, record.seeds, result.cell.keys())
            if same and resume_digest(change_scenario(scenario, result.cell)) == entry[1]:
                alike[entry] = result
    if len(alike) < len(others):
        text = "%s: summary and figures now show these cells; %d of an earlier sweep stay in cells/"
        LOG.warning(text, folder, len(others) - len(alike))
    return alike


def read_sweep(folder: Path) -> tuple[Scenario, list[CellResult]]:
    """Return the first cell's scenario, and the cells of the last sweep that the folder keeps, failed ones included.

    InputError where it is none, and where no cell has succeeded.
    """
    file = folder / RECORD
    if not is_file(file):
        raise InputError(f"{folder}: holds no {RECORD}; give a folder of `specfleet sweep --vary verifiers.count=...`")
    record = convert(read_json(file), SweepRecord, str(file))
    cells = [cell for cell in _kept(folder, record) if cell is not None]
    if not any(cell.metrics for cell in cells):
        raise InputError(f"{file}: has no cell that succeeded; `specfleet sweep` prints why when it is called again")
    return record.scenario, cells


def _kept(folder: Path, record: SweepRecord) -> Iterator[CellResult | None]:
    """Yield the result of each cell of a sweep; None where the folder has none, or that of another sweep."""
    for name, digest in record.cells:
        cell = _read(folder / "cells" / name)
        of_sweep = cell and (cell.scenario_digest, cell.world, cell.seeds) == (digest, record.world, record.seeds)
        yield cell if of_sweep else None


def _in_order(results: Mapping[int, CellResult], most: int = sys.maxsize) -> list[CellResult]:
    return [results[place] for place in sorted(results) if place < most]


def _keep_table(folder: Path, results: Mapping[int, CellResult]) -> None:
    """Write the table in pieces, so that it needs the memory of a piece alone."""
    ordered, columns = _in_order(results), list[str]()
    with deferred(), replacing(folder / TABLE) as file:
        for begin in range(0, len(ordered), PIECE):
            frame = table(ordered[begin : begin + PIECE])
            columns = columns or list(frame.columns)  # an earlier sweep's keys may stand in another order
            intervals = frame[[*NUMBERS]].to_numpy(dtype=float)
            frame[["low", "high"]] = np.array([ends(*interval) for interval in intervals]).reshape(-1, 2)
            file.write(frame[columns].to_csv(index=False, header=not begin).encode())


def table(results: Sequence[CellResult]) -> pd.DataFrame:
    """One row a cell and metric, or percentile of one: the varied keys and COLUMNS; the world may be "analytic".

    The columns are the same whatever the cells gave.
    """
    rows = []
    for result in results:
        place = shown(result.cell) | {"basis": result.basis}
        for name, metric in with_percentiles(result.metrics).items():
            rows.append({**place, "world": result.world, "quantity": name, **msgspec.structs.asdict(metric)})
        for name, value in result.analytic.items():
            rows.append({**place, "world": "analytic", "quantity": name, "value": value})
    keys = dict.fromkeys(key for result in results for key in result.cell)
    return pd.DataFrame(rows, columns=[*keys, *COLUMNS])


def read_table(path: Path) -> pd.DataFrame:
    """Return the table of a sweep, from its folder or a CSV file; InputError as `read_sweep`, and for another file."""
    if path.suffix.lower() != ".csv":
        return table(read_sweep(path)[1])
    try:
        frame = pd.read_csv(io.StringIO(read_text(path)), keep_default_na=False, na_values=[""])
        return frame.astype({"quantity": str, "world": str} | dict.fromkeys(NUMBERS, float))
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: no table as {TABLE} of a sweep's folder ({reason(error)})") from error


def wide_table(results: Sequence[CellResult]) -> pd.DataFrame:
    """One row per cell: varied keys, world, basis, overload, error; NAME, NAME_low, NAME_high, analytic_NAME a metric.

    The equations' columns are always there; they are NaN where the equations do not apply.
    """
    rows = []
    for result in results:
        row = shown(result.cell) | {"world": result.world}
        for name, metric in with_percentiles(result.metrics).items():
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), (metric.value, *metric.ends), strict=True))
        rows.append(row | {f"analytic_{name}": result.analytic.get(name, math.nan) for name in ANALYTIC})
    columns = {name: [getattr(result, name) for result in results] for name in ("basis", "overload", "error")}
    return pd.DataFrame(rows).assign(**columns)


def shown(cell: Cell) -> dict[str, Any]:
    """Return a cell for a row of a table: tables and lists among its values become texts."""
    return {key: value_label(value) if isinstance(value, (dict, list)) else value for key, value in cell.items()}


def _digest(content: Mapping[str, Any]) -> str:
    """Return the fingerprint of a cell's content; a damaged cell runs again."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]


def _read(path: Path) -> CellResult | None:
    """Return the result that a file keeps; None where there is none, or it is damaged."""
    try:
        content = read_json(path)
        if content.pop("digest") != _digest(content):
            return None
        return msgspec.convert(content | {"metrics": with_missing(content["metrics"])}, CellResult)
    except (InputError, ValueError, KeyError, TypeError, AttributeError):
        return None


def with_missing(value: Any, key: str = "") -> Any:
    """Return JSON content with NaN and infinity for null, where numbers stand that may not exist."""
    if isinstance(value, dict):
        return {name: with_missing(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [with_missing(part, key) for part in value]
    return MISSING.get(key) if value is None else value
