"""Sweep any keys of a scenario over values, in either world; one result file a cell, and only missing ones are run."""

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from experiments.jobs import side_by_side
from experiments.precision import Precision
from experiments.sweep.cell import ANALYTIC, Cell, CellResult, run_cell
from experiments.sweep.cluster.cells import cells_on_cluster
from experiments.sweep.resume import resume_digest
from fleet.errors import InputError, OutputError
from fleet.files import write_file
from fleet.inputs.text import read_json, shortened
from fleet.interrupts import deferred
from fleet.records.metrics.glossary import PERCENTILES
from fleet.records.metrics.window import with_percentiles
from fleet.scenario.changes import parse_value, parts_of, plain
from fleet.scenario.names import SimPath, World
from fleet.scenario.scenario import Scenario

Vary = Mapping[str, Iterable[Any]] | Sequence[str]
"""Values by dotted key, or texts such as `verifiers.count=1:16`."""

MOST_CELLS = 100_000
RANGE = r"\s*-?\d{1,18}\s*:\s*-?\d{1,18}\s*(:\s*-?\d{1,18}\s*)?"
LONGEST_NAME = 200  # file systems take 255 bytes
TABLE = "sweep.csv"
SCENARIO = "scenario.json"  # that of the first cell, as a record of the sweep
COLUMNS = (  # after the varied keys
    "world", "basis", "quantity", "value", "low", "high", "unit", "times_longer", "drifting",
)  # fmt: skip
TABLED_SHARE = 0.02  # the table is written again with each cell, beyond 50 with every 2 % more: cells may be thousands


def parse_vary(text: str) -> tuple[str, list[Any]]:
    """Read `key=1:16`, `key=1:16:5` (both ends included) or `key=a,b,c`; InputError for anything else."""
    key, separator, values = (part.strip() for part in text.partition("="))
    shown = shortened(text, quoted=False)
    if not key or not separator or not values:
        raise InputError(f"--vary {shown}: write KEY=FIRST:LAST[:STEP] or KEY=A,B,C, for example verifiers.count=1:16")
    if re.fullmatch(RANGE, values):
        first, last, *steps = map(int, values.split(":"))
        step = steps[0] if steps else 1
        if step == 0:
            raise InputError(f"--vary {shown}: a step of 0; allowed: 1 and more, or -1 and less to count down")
        chosen = range(first, last + (1 if step > 0 else -1), step)
        if not 1 <= len(chosen) <= MOST_CELLS:
            raise InputError(f"--vary {shown}: holds {len(chosen)} values; allowed: 1 to {MOST_CELLS}")
        return key, list(chosen)
    return key, [parse_value(part) for part in parts_of(values)]


def vary_of(vary: Vary) -> dict[str, list[Any]]:
    """Return the values to vary as lists of plain values by dotted key; InputError for a text that says none.

    >>> vary_of(["verifiers.count=1:3"])
    {'verifiers.count': [1, 2, 3]}
    """
    if not isinstance(vary, Mapping):
        return dict(map(parse_vary, [vary] if isinstance(vary, str) else vary))
    for key, values in vary.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise InputError(f"vary: {key} = {values!r}: needs a list of values")
    axes: dict[str, list[Any]] = {key: plain(list(values)) for key, values in vary.items()}
    for key, listed in axes.items():
        if not listed:
            raise InputError(f"vary: {key} = []: needs one value or more")
    return axes


def cells_of(vary: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the varied values, given by dotted key; InputError for more than MOST_CELLS."""
    axes = {key: list(values) for key, values in vary.items()}
    count = math.prod(map(len, axes.values()))
    if not 1 <= count <= MOST_CELLS:
        raise InputError(f"--vary {', '.join(axes)}: {count} combinations; allowed: 1 to {MOST_CELLS}")
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def cell_file(folder: Path, cell: Cell) -> Path:
    """Return where a cell's result lives; its name says what varies."""
    name = ",".join(f"{key}={value}" for key, value in cell.items()).replace("/", "_") or "cell"
    if len(name) > LONGEST_NAME:  # whole tables were varied
        name = hashlib.sha256(name.encode()).hexdigest()[:16]
    return folder / "cells" / f"{name}.json"


def sweep(
    cells: Iterable[tuple[Cell, Scenario]],
    folder: Path | None = None,
    world: World = "sim",
    seeds: int = 3,
    jobs: int = 1,
    done: Callable[[CellResult], None] = lambda _result: None,
    precision: Precision | None = None,
    path: SimPath = "auto",
    cluster: str = "",
) -> list[CellResult]:
    """Run all cells and return their results in order, failed ones included; `done` is called after each.

    With `precision` (`experiments/precision.py`) a cell is one simulation, as long as it takes, instead of `seeds`.
    `path`: how to simulate cells; results are the same. `cluster`: the address of dask's scheduler. Its workers then
    run the cells instead of `jobs` processes here, with the same results; errors as in `cluster/send.py`.

    With a folder, results stay there. A cell does not run again if its file is there for the same scenario, file
    contents, world and seeds, unless it failed. The engine runs one cell at a time, because two would slow each other
    down. Raises InputError, before any cell runs, if a folder is in the place of a file of results.
    """
    results: dict[int, CellResult] = {}
    todo, aims, first = [], dict(precision or {}), None
    if folder:
        for name in (TABLE, SCENARIO):
            _free(folder / name)
    for place, (cell, scenario) in enumerate(cells):
        first = first or scenario
        kept = _read(_free(cell_file(folder, cell))) if folder else None
        if (
            kept
            and not kept.error
            and (kept.scenario_digest, kept.world, kept.seeds, kept.precision)
            == (resume_digest(scenario), world, 1 if aims else seeds, aims)
        ):
            results[place] = kept
            done(kept)
        else:
            todo.append((place, cell, scenario))
    at_once = 1 if world == "engine" else max(1, min(jobs, len(todo)))
    running = (
        cells_on_cluster([(cell, scenario) for _, cell, scenario in todo], cluster, seeds, aims, path)
        if cluster
        else _run_here([(cell, scenario, world, seeds, aims, path) for _, cell, scenario in todo], at_once)
    )
    try:
        with closing(running) as finished:
            _collect(finished, todo, results, folder, done)
        if folder:
            write_file(folder / SCENARIO, msgspec.json.format(msgspec.json.encode(first), indent=2) + b"\n")
    except OutputError as error:
        error.result = _in_order(results)
        raise
    return _in_order(results)


def kept_cells(folder: Path) -> list[CellResult]:
    """Return the cells that the folder of a sweep keeps, failed ones included, by the names of their files."""
    kept = (_read(file) for file in sorted((folder / "cells").glob("*.json")))
    return [cell for cell in kept if cell is not None]


def _run_here(arguments: Sequence[tuple[Any, ...]], at_once: int) -> Iterator[tuple[int, CellResult]]:
    yield from enumerate(side_by_side(run_cell, arguments, at_once))


def _free(file: Path) -> Path:
    """Return the place of a file of results; InputError where a folder is in it."""
    if file.is_dir():
        raise InputError(f"{file}: is a folder, where results belong; remove it, or name another folder for the sweep")
    return file


def _collect(
    finished: Iterator[tuple[int, CellResult]],
    todo: Sequence[tuple[int, Cell, Scenario]],
    results: dict[int, CellResult],
    folder: Path | None,
    done: Callable[[CellResult], None],
) -> None:
    """Add to `results` what finishes, each with its number in `todo`.

    With a folder, keep each cell and the table there, interrupted or not.
    """
    tabled = 0
    try:
        for number, result in finished:
            place, cell, _ = todo[number]
            with deferred():  # what is kept is counted, too
                results[place] = result
                if folder:
                    write_file(cell_file(folder, cell), sealed(result))
                    if len(results) - tabled >= TABLED_SHARE * len(results):
                        keep_table(folder, results)
                        tabled = len(results)
                done(result)
    finally:
        if folder and tabled < len(results):
            keep_table(folder, results)


def _in_order(results: Mapping[int, CellResult]) -> list[CellResult]:
    return [results[place] for place in sorted(results)]


def keep_table(folder: Path, results: Mapping[int, CellResult]) -> None:
    """Write the table of the cells that are finished, by their places, into the folder of a sweep."""
    text: str = table(_in_order(results)).to_csv(index=False)
    write_file(folder / TABLE, text)


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


def wide_table(results: Sequence[CellResult]) -> pd.DataFrame:
    """One row per cell: varied keys, world, basis, overload, error; NAME, NAME_low, NAME_high, analytic_NAME a metric.

    The equations' columns are always there; they are NaN where the equations do not apply.
    """
    rows = []
    for result in results:
        row = shown(result.cell) | {"world": result.world}
        for name, metric in with_percentiles(result.metrics).items():
            row |= {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
        rows.append(row | {f"analytic_{name}": result.analytic.get(name, math.nan) for name in ANALYTIC})
    columns = {"basis": [result.basis for result in results], "overload": [result.overload for result in results]}
    columns |= {"error": [result.error for result in results]}
    return pd.DataFrame(rows).assign(**columns)


def shown(cell: Cell) -> dict[str, Any]:
    """Return a cell for a row of a table: tables and lists among its values become texts."""
    return {key: str(value) if isinstance(value, (dict, list)) else value for key, value in cell.items()}


def _read(path: Path) -> CellResult | None:
    """Return the result that a file keeps; None where there is none, or it is not as it was written."""
    try:
        content = read_json(path)
        if not isinstance(content, dict) or content.pop("digest", None) != _digest(content):
            return None
        for metric in content["metrics"].values():
            _restore_numbers(metric)
        return msgspec.convert(content, CellResult)
    except (InputError, ValueError, KeyError):
        return None


def _restore_numbers(metric: dict[str, Any]) -> None:
    """Put in the NaN and infinity of a metric and its percentiles, which are null in JSON."""
    metric.update({key: math.nan for key in ("value", "low", "high") if metric[key] is None})
    if metric.get("times_longer") is None:
        metric["times_longer"] = math.inf
    for percentile in PERCENTILES:
        if metric.get(percentile) is not None:
            _restore_numbers(metric[percentile])


def sealed(result: CellResult) -> bytes:
    """Return what the file of a cell holds: the result as JSON, and a fingerprint of it."""
    content = msgspec.json.decode(msgspec.json.encode(result))
    return msgspec.json.format(msgspec.json.encode(content | {"digest": _digest(content)}), indent=2) + b"\n"


def _digest(content: Mapping[str, Any]) -> str:
    """Fingerprint of what a cell's file holds, so that a damaged one is run again."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]
