"""Lists the shipped files by name."""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from specfleet.fleet.inputs.text import read_toml


def shipped_scenarios() -> dict[str, Path]:
    """List the scenarios that ship, by name.

    >>> list(shipped_scenarios())[-2:]
    ['star', 'tree']
    """
    return _files("scenarios")


def shipped_profiles() -> dict[str, Path]:
    """List the profiles that ship, by name."""
    return _files("profiles")


def shipped_devices() -> dict[str, Path]:
    """List the files of the devices that ship, by name."""
    return _files("devices")


def shipped_engines() -> dict[str, Path]:
    """List the files of the engines that ship, by name."""
    return _files("engines")


@cache
def shipped_models() -> dict[str, dict[str, Any]]:
    """Return the models that ship, by name: keys of their config.json, `parameters` and `source`."""
    return {name: table for tables in shipped_tables("shapes").values() for name, table in tables.items()}


@cache
def shipped_tables(folder: str) -> dict[str, dict[str, Any]]:
    """Return the tables of the TOML files of a folder that ship, by the name of their file."""
    return {name: read_toml(path) for name, path in _files(folder).items()}


@cache
def _files(folder: str) -> dict[str, Path]:
    place = Path(str(resources.files("specfleet.fleet.data"))) / folder
    return {path.stem: path for path in sorted(place.iterdir())}
