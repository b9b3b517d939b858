"""From a TOML file to a checked scenario, with one-line errors that say what to do."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.format import check_format
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import read_toml
from specfleet.fleet.scenario.changes import Changes, apply_changes, pairs_of
from specfleet.fleet.scenario.conflicts import conflicts
from specfleet.fleet.scenario.named_files import with_files
from specfleet.fleet.scenario.readers import overruled
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.sides import check_drafts, with_profiles
from specfleet.fleet.times.profile import HardwareProfile, read_profile

Given = str | Path | Scenario | Mapping[str, Any]
"""A scenario: its file (TOML), the name of a shipped one, a Scenario, or its content as a mapping."""

STATED = "stated: by a change of the profile"
NO_SLOWDOWN = "stated: none after idle gaps, by a time of every draft"


def scenario_of(source: Given, changes: Changes | None = None, **keys: Any) -> Scenario:
    """Return a scenario, with changes, from a file (TOML), the name of a shipped one, a Scenario, or a mapping.

    - `changes`: values by dotted key.
    - keywords: keys of the scenario; a dict changes only its own keys, unless it names a policy or model (`{"policy":
      "at-most", "sessions": 4}`), which replaces the existing one.

    Files named in a scenario file are relative to its folder. Files named elsewhere, and all folders of models, are
    relative to the working folder. Raises InputError, one line with file, key, value and what is allowed.

    >>> scenario_of("star", {"verifiers.count": 8}, acceptance={"beta": 0.9}).verifiers.count
    8
    >>> scenario_of({"drafters": {"depth": 3}, "link": {"latency_s": "10ms"}}).link.latency_s
    0.01
    """
    pairs = [*pairs_of(changes or ()), *keys.items()]
    if isinstance(source, Scenario):
        return change_scenario(source, pairs)
    if isinstance(source, Mapping):
        content: dict[str, Any] = {}
        apply_changes(content, [*source.items(), *pairs], "scenario")
        return make_scenario(content, stated=[*source, *dict(pairs)])
    path, shipped = Path(source), shipped_files("scenarios")
    is_there = os.path.exists(path)
    if not is_there and str(source) in shipped:
        return read_scenario(shipped[str(source)], pairs, Path())
    try:
        return read_scenario(path, pairs)
    except InputError as error:
        if is_there:
            raise
        raise InputError(f"{error}, and no shipped scenario has that name; shipped: {', '.join(shipped)}") from error


def read_scenario(path: Path, changes: Changes = (), base: Path | None = None) -> Scenario:
    """Read a scenario file and apply changes: values by dotted key, or texts such as `verifiers.count=4`.

    - `base`: folder of its profile and its named files, by default the scenario's folder. Folders of models are
      relative to the working folder.

    Raises InputError, one line with file, key, value and what is allowed.
    """
    content, base = read_toml(path), path.parent if base is None else base
    pairs = _with_implied(changes)
    stated = {key.split(".")[1] for key, _ in pairs if key.startswith("profile.")} - {"sources"}
    sources = dict.fromkeys(stated, STATED)
    named = [(key, value) for key, value in pairs if key == "profile" and isinstance(value, str) and stated]
    content |= dict(named)  # a profile that is named beside changes of its parts
    _open_profile(content, sources, base)
    apply_changes(content, [pair for pair in pairs if pair not in named], str(path))
    return make_scenario(content, str(path), base, dict(pairs))


def _with_implied(changes: Changes) -> list[tuple[str, Any]]:
    """Return changes, and what times imply: a verification's holds for one token too, a draft's after any idle gap."""
    pairs = list(pairs_of(changes))
    stated, parts = dict(pairs), {str(key).split(".")[1] for key, _ in pairs if str(key).startswith("profile.")}
    if "profile.verify" in stated and "decode" not in parts:
        source = "assumed: as long as a stated verification"
        pairs += [("profile.decode", stated["profile.verify"]), ("profile.sources.decode", source)]
    if "idle" not in parts and not isinstance(stated.get("profile.draft", {}), Mapping):
        pairs += [("profile.idle.slowdowns", [1.0]), ("profile.sources.idle", NO_SLOWDOWN)]
    return pairs


def _open_profile(content: dict[str, Any], changed: Mapping[str, str], base: Path) -> None:
    """Put the numbers of a profile in the place of its name, if some are changed: `changed` has their sources."""
    if changed and isinstance(content.get("profile"), str) and content["profile"]:
        table = msgspec.to_builtins(read_profile(content["profile"], base))
        sources = {key: text for key, text in table["sources"].items() if key.split(".")[0] not in changed}
        content["profile"] = table | {"name": f"{table['name']}, changed", "sources": {**sources, **changed}}


def change_scenario(scenario: Scenario, changes: Changes) -> Scenario:
    """Return the scenario with changes, checked like a file; named files are relative to the working folder."""
    content, origin, pairs = msgspec.to_builtins(scenario), f"scenario {scenario.name!r}", _with_implied(changes)
    apply_changes(content, pairs, origin)
    return make_scenario(content, origin, stated=dict(pairs))


def make_scenario(
    content: Mapping[str, Any], origin: str = "scenario", base: Path = Path(), stated: Iterable[str] = ()
) -> Scenario:
    """Build a checked scenario; `origin`: its name in errors, `base`: its files' folder, `stated`: changed keys."""
    check_format(content, origin, "bring its keys up to date (specfleet explain KEY), then change `version`")
    check_format(content.get("profile"), f"{origin}: profile", "calibrate again")
    scenario = convert(content, Scenario, origin)
    for problem in conflicts(scenario):
        raise InputError(f"{origin}: {problem}")
    for key, winner in overruled(scenario, stated):
        raise InputError(f"{origin}: {key} has no effect, since {winner} is stated; change that, or leave {key} out")

    def read(profile: HardwareProfile | str, key: str) -> HardwareProfile | str:
        if not isinstance(profile, str) or not profile:
            return profile
        try:
            return read_profile(profile, base)
        except InputError as error:
            raise InputError(f"{origin}: {key.removesuffix('profile')}{error}") from error

    scenario = with_profiles(scenario, read)
    check_drafts(scenario, origin)
    return with_files(scenario, lambda path: str(base / path))
