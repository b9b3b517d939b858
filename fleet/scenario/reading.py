"""From a TOML file to a checked scenario, with errors a person can act on in one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fleet.chance.places import ByPlace
from fleet.chance.signals import SignalFile
from fleet.errors import InputError
from fleet.inputs.strict import convert
from fleet.inputs.text import read_toml
from fleet.scenario.changes import Changes, apply_changes
from fleet.scenario.conflicts import conflicts
from fleet.scenario.scenario import Scenario, Trace, needs_of
from fleet.times.profile import read_profile


def read_scenario(path: Path, changes: Changes = (), base: Path | None = None) -> Scenario:
    """Read a scenario file and apply changes: values by dotted key, or texts such as `verifiers.count=4`.

    Profile and prompt files are found relative to `base`, the scenario's folder unless told otherwise. Raises
    InputError, in one line naming file, key, value and what is allowed.
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
    if isinstance(scenario.profile, str) and scenario.profile:
        try:
            profile = read_profile(scenario.profile, base)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from error
        scenario = msgspec.structs.replace(scenario, profile=profile)
    return _located(scenario, base)


def _located(scenario: Scenario, base: Path) -> Scenario:
    """Return the scenario with the files that it names found from the folder `base`."""
    workload, model = scenario.workload, scenario.acceptance
    if workload.conversations:
        workload = msgspec.structs.replace(workload, conversations=str(base / workload.conversations))
    if workload.lengths:
        workload = msgspec.structs.replace(workload, lengths=str(base / workload.lengths))
    if workload.ends:
        workload = msgspec.structs.replace(workload, ends=str(base / workload.ends))
    if isinstance(workload.arrivals, Trace):
        arrivals = msgspec.structs.replace(workload.arrivals, file=str(base / workload.arrivals.file))
        workload = msgspec.structs.replace(workload, arrivals=arrivals)
    if isinstance(model, SignalFile | ByPlace):
        model = msgspec.structs.replace(model, file=str(base / model.file))
    return msgspec.structs.replace(scenario, workload=workload, acceptance=model)
