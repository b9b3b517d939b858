"""From a TOML file to a checked scenario, with errors a person can act on in one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fleet.data.shipped import shipped_scenarios
from fleet.errors import InputError
from fleet.inputs.format import check_format
from fleet.inputs.strict import convert
from fleet.inputs.text import exists, read_toml
from fleet.scenario.changes import Changes, apply_changes, pairs_of
from fleet.scenario.conflicts import conflicts
from fleet.scenario.named_files import with_files
from fleet.scenario.scenario import Scenario, needs_of
from fleet.scenario.sides import with_profiles
from fleet.times.profile import HardwareProfile, read_profile

Given = str | Path | Scenario
"""A scenario: its file (TOML), the name of a shipped one, or itself."""


def scenario_of(given: Given, changes: Changes | None = None, **keys: Any) -> Scenario:
    """Return the scenario that is given: a file (TOML), the name of a shipped one, or a Scenario, with changes.

    `changes` are values by dotted key; keywords are keys of the scenario, where a dict changes only what it names. A
    dict that says which policy or model it is (`{"policy": "at-most", "sessions": 4}`) replaces what was there. Files
    that a scenario file names are found from its folder, those of a shipped scenario or a Scenario, and all folders of
    models, from the working folder. InputError, in one line with file, key, value and what is allowed, for what is
    wrong.

    >>> scenario_of("star", {"verifiers.count": 8}, acceptance={"beta": 0.9}).verifiers.count
    8
    """
    pairs = [*pairs_of(changes or ()), *keys.items()]
    if isinstance(given, Scenario):
        return change_scenario(given, pairs)
    path, shipped = Path(given), shipped_scenarios()
    is_there = exists(path)
    if not is_there and str(given) in shipped:
        return read_scenario(shipped[str(given)], pairs, Path())
    try:
        return read_scenario(path, pairs)
    except InputError as error:
        if is_there:
            raise
        raise InputError(f"{error}, and no shipped scenario has that name; shipped: {', '.join(shipped)}") from error


def read_scenario(path: Path, changes: Changes = (), base: Path | None = None) -> Scenario:
    """Read a scenario file and apply changes: values by dotted key, or texts such as `verifiers.count=4`.

    Its profile and the files that it names are found relative to `base`, by default the scenario's folder;
    folders of models, from the working folder. Raises InputError, in one line naming file, key, value and what is
    allowed.
    """
    content = read_toml(path)
    apply_changes(content, changes, str(path))
    return make_scenario(content, str(path), path.parent if base is None else base)


def change_scenario(scenario: Scenario, changes: Changes) -> Scenario:
    """Return the scenario with changes, checked as if it was read; files are found from the working folder."""
    content, origin = msgspec.to_builtins(scenario), f"scenario {scenario.name!r}"
    apply_changes(content, changes, origin)
    return make_scenario(content, origin)


def make_scenario(content: Mapping[str, Any], origin: str = "scenario", base: Path = Path()) -> Scenario:
    """Turn plain content into a checked scenario; `origin` names it in errors, `base` is the folder of its files."""
    check_format(content, origin, "bring its keys up to date (specfleet explain KEY), then change `version`")
    check_format(content.get("profile"), f"{origin}: profile", "calibrate again")
    scenario = convert(content, Scenario, origin)
    for key, device in (
        ("drafters.device", scenario.drafters.device),
        ("verifiers.device", scenario.verifiers.device),
    ):
        if device and device not in scenario.devices:
            known = ", ".join(scenario.devices) or "none: add a table [devices.NAME]"
            raise InputError(f"{origin}: {key} = {device!r} is no device of [devices]; allowed: {known}")
    for problem in conflicts(scenario, needs_of(scenario)):
        raise InputError(f"{origin}: {problem}")

    def read(given: HardwareProfile | str, key: str) -> HardwareProfile | str:
        if not isinstance(given, str) or not given:
            return given
        try:
            return read_profile(given, base)
        except InputError as error:
            raise InputError(f"{origin}: {key.removesuffix('profile')}{error}") from error

    return with_files(with_profiles(scenario, read), lambda path: str(base / path))
