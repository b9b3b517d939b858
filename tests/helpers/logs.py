"""Logs written by tests."""

from collections.abc import Iterable
from typing import Any

from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.run import Run
from specfleet.fleet.records.schema import SCHEMA


def log_of(rows: Iterable[Iterable[Any]]) -> Log:
    """Write rows, with values in the order of SCHEMA, as a station does."""
    return [value for row in rows for value in row]


def log_of_run(run: Run) -> Log:
    """The rows of a run as its stations wrote them."""
    return log_of(zip(*(run.table.column(name).to_pylist() for name in SCHEMA.names), strict=True))
