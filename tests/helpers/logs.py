"""Logs that tests write by hand."""

from collections.abc import Iterable
from typing import Any

from fleet.records.recorded import Log


def log_of(rows: Iterable[Iterable[Any]]) -> Log:
    """Write rows, whose values are in the order of SCHEMA, one after another, as a station does."""
    return [value for row in rows for value in row]
