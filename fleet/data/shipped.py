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
    return {name: table for path in _files("shapes").values() for name, table in read_toml(path).items()}


@cache
def published_tables(name: str = "threads") -> dict[str, Any]:
    """Return numbers that others published: those of users of serving engines, by thread, or a paper's."""
    return read_toml(_files("published")[name])


def _files(folder: str) -> dict[str, Path]:
    place = Path(str(resources.files("specfleet.fleet.data"))) / folder
    return {path.stem: path for path in sorted(place.iterdir())}
