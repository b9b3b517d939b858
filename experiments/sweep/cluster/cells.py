"""Cells of a sweep as parcels for a cluster: resolved here, run there, with results as if they had been run here."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from experiments.precision import Precision
from experiments.sweep.cell import Cell, CellResult, run_cell
from experiments.sweep.cluster.parcels import Parcel
from experiments.sweep.cluster.send import on_cluster
from experiments.sweep.resume import resume_digest
from fleet.scenario.named_files import with_files
from fleet.scenario.names import SimPath
from fleet.scenario.scenario import Scenario

LOST = "its worker was killed, and so were those that ran it again: its memory may be too small"


def cells_on_cluster(
    cells: Sequence[tuple[Cell, Scenario]], address: str, seeds: int, precision: Precision, path: SimPath
) -> Iterator[tuple[int, CellResult]]:
    """Yield number and result of each cell, as they come from the workers at an address; errors as `on_cluster`.

    A cell with unreadable files runs here, so that its error is the usual one.
    """
    more = (seeds, dict(precision), path)
    paths = [paths_of(scenario) for _, scenario in cells]
    here = [number for number, of_cell in enumerate(paths) if not all(map(_is_readable, of_cell))]
    there = sorted(set(range(len(cells))) - set(here))
    parcels = [Parcel((*cells[number], *more), paths[number]) for number in there]
    with closing(on_cluster(run_sent, parcels, address, lost)) as results:
        for number, result in results:
            yield there[number], _as_run_here(result, cells[there[number]][1])
    for number in here:
        yield number, run_cell(*cells[number], "sim", *more)


def run_sent(
    cell: Cell, scenario: Scenario, seeds: int, precision: Precision, path: SimPath, places: Mapping[str, str]
) -> CellResult:
    """Run a cell with its files at `places`, by the paths in the scenario; errors name those paths."""
    result = run_cell(dict(cell), with_files(scenario, places.__getitem__), "sim", seeds, precision, path)
    error = result.error
    for named, place in places.items():
        error = error.replace(place, named)
    return msgspec.structs.replace(result, error=error)


def lost(cell: Cell, _scenario: Scenario, seeds: int, *_more: Any) -> CellResult:
    """Return the result of a cell that kills its workers."""
    return CellResult(dict(cell), "sim", seeds, "", error=LOST)


def paths_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the paths of the files that a scenario names.

    >>> paths_of(Scenario())
    ()
    """
    paths: dict[str, None] = {}
    with_files(scenario, lambda path: paths.setdefault(path) or path)
    return tuple(paths)


def _as_run_here(result: CellResult, scenario: Scenario) -> CellResult:
    """Give the result the digest of our own files, which a later sweep here looks for."""
    return msgspec.structs.replace(result, scenario_digest=resume_digest(scenario))


def _is_readable(path: str) -> bool:
    try:
        with Path(path).open("rb"):
            return True
    except (OSError, ValueError):
        return False
