"""Which scenario: a file, the name of a shipped one, or a Scenario; with changes by dotted key and by keyword."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.data.shipped import shipped_scenarios
from fleet.errors import InputError
from fleet.inputs.text import exists
from fleet.scenario.changes import Changes, pairs_of
from fleet.scenario.reading import change_scenario, read_scenario
from fleet.scenario.scenario import Scenario
from specfleet.arguments import path_of

Given = str | Path | Scenario


def pairs_of_given(changes: Changes | None, keys: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return changes, then keywords, as pairs in order; InputError for changes that are neither mapping nor list.

    >>> pairs_of_given({"verifiers.count": 8}, {"seed": 3})
    [('verifiers.count', 8), ('seed', 3)]
    """
    told = () if changes is None else changes
    if isinstance(told, str) or not isinstance(told, Mapping | Sequence):
        raise InputError(f"changes = {changes!r}: needs values by dotted key, such as {{'verifiers.count': 8}}")
    return [*pairs_of(told), *keys.items()]


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
    wanted = pairs_of_given(changes, keys)
    if isinstance(given, Scenario):
        return change_scenario(given, wanted)
    if not isinstance(given, str | Path):
        raise InputError(f"scenario = {given!r}: needs a file (TOML), the name of a shipped scenario, or a Scenario")
    path, shipped = path_of(given, "scenario"), shipped_scenarios()
    there = exists(path)
    if not there and str(given) in shipped:
        return read_scenario(shipped[str(given)], wanted, Path())
    try:
        return read_scenario(path, wanted)
    except InputError as error:
        if there:
            raise
        raise InputError(f"{error}, and no shipped scenario has that name; shipped: {', '.join(shipped)}") from error
