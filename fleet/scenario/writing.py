"""Writes a scenario as TOML: the keys that differ from the defaults, and a few keys always."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.scenario.scenario import Drafters, Scenario, SharedDevice, Verifiers, Workload

TABLES = ("drafters", "verifiers", "link", "acceptance", "workload", "measure", "slo", "cost")
BARE = re.compile("[A-Za-z0-9_-]+")
ALWAYS = {
    Drafters: ("depth",),
    Verifiers: ("count",),
    Workload: ("requests", "prompt_tokens", "new_tokens"),
    SharedDevice: ("sharing",),
}
"""Keys that a written scenario always has."""


def scenario_lines(scenario: Scenario, profile: str = "", comments: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of the scenario's file.

    - `profile`: its value in the file, a shipped name or a path relative to the scenario; empty for a table.
    - `comments`: the first lines.
    """
    yield from (f"# {comment}" for comment in comments)
    yield f"name = {toml(scenario.name)}"
    yield f"seed = {scenario.seed}"
    if profile:
        yield f"profile = {toml(profile)}"
    if scenario.acceptance is None:
        yield "# There is no table [acceptance]: what the profile measured holds; 'beta-geometric' is a fit to it."
    if scenario.precision != "float32":
        yield f"precision = {toml(scenario.precision)}"
    for name in (*TABLES, *([] if profile else ["profile"])):
        table = getattr(scenario, name)
        keys = _keys(table) if isinstance(table, msgspec.Struct) else {}
        if keys:
            yield from ("", f"[{name}]", *(f"{key} = {toml(value)}" for key, value in keys.items()))
    for name, device in scenario.devices.items():
        yield from ("", f"[devices.{_key(name)}]", f"sharing = {toml(device.sharing)}")
    for fault in scenario.faults:
        keys = {key: value for key, value in msgspec.to_builtins(fault).items() if value is not None}
        yield from ("", "[[faults]]", *(f"{key} = {toml(value)}" for key, value in keys.items()))


def _keys(table: msgspec.Struct) -> dict[str, Any]:
    """Return the keys of a table to write: its tag, those that differ from their defaults, and a few always."""
    field, name = tag_of(type(table))
    shown = {key: getattr(table, key) for key in ALWAYS.get(type(table), ())}
    return ({field: name} if field else {}) | shown | changed(table)


def toml(value: Any) -> str:
    """Write a value in one line of TOML; policies, models and tables without their defaults."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool | str | int | float):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    content = changed(value)
    field, name = tag_of(type(value))
    if field:
        return toml({field: name} | content if content else name)
    return toml(value.kind if isinstance(value, Shape) and set(content) <= {"kind"} else content)


def _key(name: str) -> str:
    """Return a name as a key of TOML, quoted unless it is bare."""
    return name if BARE.fullmatch(name) else toml(name)


def tag_of(struct: type) -> tuple[str, str]:
    """Return the tag key of a policy or model, and its name; empty for other structs."""
    config = getattr(struct, "__struct_config__", None)
    return (str(config.tag_field), str(config.tag)) if config is not None and config.tag_field else ("", "")


def fields_of(struct: type) -> tuple[inspect.Field, ...]:
    """Return the fields of a struct or named tuple."""
    kind = inspect.type_info(struct)
    assert isinstance(kind, inspect.StructType | inspect.NamedTupleType), struct
    return kind.fields


def default_of(field: inspect.Field) -> Any:
    """Return a field's default; NODEFAULT if it is required, UNSET if it is left out of files."""
    if not field.required and field.default is field.default_factory is msgspec.NODEFAULT:
        return msgspec.UNSET
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def changed(value: Any) -> dict[str, Any]:
    """Return the fields of a struct that differ from their defaults."""
    values = {field.encode_name: (getattr(value, field.name), default_of(field)) for field in fields_of(type(value))}
    return {key: item for key, (item, default) in values.items() if default is msgspec.NODEFAULT or item != default}
