"""JSON Schemas of what users write and read, made from the structs, so that editors complete keys and explain them."""

from typing import Any

import msgspec

from experiments.compare.compare import Comparison
from experiments.plan.answer import Plan
from fleet.inputs.strict import MEANS, name_key
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile
from specfleet.meaning.entries import KeyTable, tables_from
from specfleet.results import RunSummary

KINDS: dict[str, type[msgspec.Struct]] = {
    "scenario": Scenario, "profile": HardwareProfile, "run": RunSummary, "comparison": Comparison, "plan": Plan,
}  # fmt: skip
INPUTS = ("scenario", "profile")  # files that people write: a number may have a unit, a table may be its bare name
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT = {"type": "string"}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file or output; KINDS lists them."""
    root = KINDS[kind]
    schema, tables = msgspec.json.schema(root), {table.struct.__name__: table for table in tables_from(root)}
    for name, definition in schema["$defs"].items():
        if name in tables:
            _describe(definition, tables[name])
        for key, value in definition.get("properties", {}).items():
            definition["properties"][key] = _written(value, tables) if kind in INPUTS else _printed(value)
    return {"$schema": DIALECT, **schema}


def _describe(definition: dict[str, Any], table: KeyTable) -> None:
    """Put the meaning of a table and of its keys where editors show them."""
    definition["description"] = table.first
    for key in table.keys:
        unit = key.facts.get("unit", "")
        definition["properties"][key.name]["description"] = key.what + (f" Unit: {unit}." if unit else "")


def _written(value: Any, tables: dict[str, KeyTable]) -> Any:
    """Allow what a file may say instead: a number with its unit, the bare name of a table, a duration for a time."""
    if isinstance(value, list):
        return [_written(each, tables) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: each if key == "default" else _written(each, tables) for key, each in value.items()}
    if value.get("type") == "number":
        return _or_text(inner, TEXT)
    if "discriminator" in value:  # the tag is in each table; the bare names are texts
        return _or_text({"anyOf": value["anyOf"]}, {"enum": list(value["discriminator"]["mapping"])}, inner)
    table = tables.get(str(value.get("$ref", "")).rpartition("/")[2])
    if table is not None and (name_key(table.struct) or table.keys[0].name in MEANS):
        return _or_text({"$ref": value["$ref"]}, TEXT, inner)
    return inner


def _or_text(schema: dict[str, Any], text: dict[str, Any], keep: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a schema that also allows a text; description and default stay where editors look for them."""
    outside = {name: part for name, part in (keep or schema).items() if name in ("description", "default")}
    return {"anyOf": [{name: part for name, part in schema.items() if name not in outside}, text], **outside}


def _printed(value: Any) -> Any:
    """Allow null for a number: JSON has no NaN."""
    if isinstance(value, list):
        return [_printed(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: each if key == "default" else _printed(each) for key, each in value.items()}
    return inner | {"type": ["number", "null"]} if value.get("type") == "number" else inner
