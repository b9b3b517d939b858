"""A scenario as a file: TOML that shows what differs from the defaults, and a few keys always."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fleet.scenario.scenario import Device, Drafters, Scenario, Verifiers, Workload
from specfleet.meaning.kinds import changed, tag_of, toml

TABLES = ("drafters", "verifiers", "batch", "link", "acceptance", "workload", "measure", "slo", "cost", "memory")
ALWAYS = {
    Drafters: ("model", "depth"),
    Verifiers: ("model", "count"),
    Workload: ("requests", "prompts", "prompt_tokens", "new_tokens"),
    Device: ("sharing",),
}
"""Keys that a written scenario shows even where they are at their default."""


def lines_of(
    scenario: Scenario,
    profile_file: str,
    remarks: Sequence[str] = (),
    of_devices: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[str]:
    """Yield the lines of the scenario's file; its profile is in `profile_file`, found from the scenario's folder.

    `remarks`: comments at its beginning. `of_devices`: comments before the tables of devices, by name.
    """
    yield from (f"# {remark}" for remark in remarks)
    yield f"name = {toml(scenario.name)}"
    yield f"seed = {scenario.seed}"
    yield f"profile = {toml(profile_file)}  # found from this file's folder"
    if scenario.acceptance is None:
        yield "# There is no table [acceptance]: what the profile measured holds."
    if scenario.precision != "float32":
        yield f"precision = {toml(scenario.precision)}"
    for name in TABLES:
        table = getattr(scenario, name)
        keys = {} if table is None else _keys(table)
        if keys:
            yield from ("", f"[{name}]", *(f"{key} = {toml(value)}" for key, value in keys.items()))
    for name, device in scenario.devices.items():
        yield from ("", *(of_devices or {}).get(name, ()), f"[devices.{name}]", f"sharing = {toml(device.sharing)}")
    for fault in scenario.faults:
        keys = {key: value for key, value in msgspec.to_builtins(fault).items() if value is not None}
        yield from ("", "[[faults]]", *(f"{key} = {toml(value)}" for key, value in keys.items()))


def _keys(table: msgspec.Struct) -> dict[str, Any]:
    """Keys of a table to show: its policy's name, those that differ from their defaults, and a few always."""
    field, name = tag_of(type(table))
    shown = {key: getattr(table, key) for key in ALWAYS.get(type(table), ())}
    return ({field: name} if field else {}) | shown | changed(table)
