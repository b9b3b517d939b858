"""Lists the shipped files by name."""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from specfleet.fleet.inputs.text import read_toml


@cache
def shipped_files(folder: str) -> dict[str, Path]:
    """List the files of a folder that ship, by name: scenarios, profiles, devices, engines.

    >>> list(shipped_files("scenarios"))[-2:]
    ['star', 'tree']
    """
    place = Path(str(resources.files("specfleet.fleet.data"))) / folder
    return {path.stem: path for path in sorted(place.iterdir())}


@cache
def shipped_models() -> dict[str, dict[str, Any]]:
    """Return the models that ship, by name: keys of their config.json, `parameters` and `source`."""
    return {name: table for tables in shipped_tables("shapes").values() for name, table in tables.items()}


@cache
def shipped_tables(folder: str) -> dict[str, dict[str, Any]]:
    """Return the tables of the TOML files of a folder that ship, by the name of their file."""
    return {name: read_toml(path) for name, path in shipped_files(folder).items()}
