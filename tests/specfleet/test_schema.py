"""Schemas accept what the program accepts, name what it refuses, and describe every key."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

import specfleet
from fleet.data.shipped import shipped_scenarios
from fleet.errors import InputError
from fleet.scenario.reading import make_scenario
from fleet.times.profile import read_profile
from specfleet.meaning.schema import KINDS, schema_of

SCENARIO = Draft202012Validator(schema_of("scenario"))
STARS: list[tuple[dict[str, Any], bool]] = [
    ({"link": "5ms", "verifiers": {"verify": "60 ms"}, "drafters": {"order": "priority", "shape": "tree"}}, True),
    ({"acceptance": {"model": "geometric", "beta": "70%"}, "workload": {"temperature": 0.5}}, True),
    ({"workload": {"new_tokens": {"low": 1, "high": 9}}, "verifiers": {"tiers": [{"first": 1, "link": "1ms"}]}}, True),
    ({"drafters": {"depht": 3}}, False),
    ({"drafters": {"depth": 0}}, False),
    ({"drafters": {"order": "lifo"}}, False),
    ({"acceptance": {"model": "geometric", "beta": 1.5}}, False),
    ({"acceptance": {"model": "geometric"}}, False),
]  # fmt: skip


def test_shipped_scenarios_and_profiles_are_valid() -> None:
    for file in shipped_scenarios().values():
        SCENARIO.validate(tomllib.loads(file.read_text()))
    profile = Draft202012Validator(schema_of("profile"))
    for name in ("a100", "rtx-4090", "jetson-orin"):
        profile.validate(json.loads(msgspec.json.encode(read_profile(name, Path()))))


@pytest.mark.parametrize(("tables", "fits"), STARS)
def test_the_schema_and_the_program_agree(tables: dict[str, Any], fits: bool) -> None:
    assert SCENARIO.is_valid(tables) == fits
    if fits:
        make_scenario(tables)
    else:
        with pytest.raises(InputError):
            make_scenario(tables)


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_one_and_every_written_key_is_described(kind: str) -> None:
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    if kind == "scenario":
        tables = {name: table for name, table in schema["$defs"].items() if name not in ("Roofline", "AttentionTime")}
        keys = [(name, key, part) for name, table in tables.items() for key, part in table["properties"].items()]
        tags = {"policy", "model", "process", "what", "spread", "roofline"}  # rooflines are estimated, not written
        assert [(name, key) for name, key, part in keys if key not in tags and not part.get("description")] == []


def test_printed_results_fit_their_schema() -> None:
    first = specfleet.simulate("star", {"workload.requests": 20})
    printed = {"run": first.summary(), "comparison": specfleet.compare(first, first)}
    for kind, result in printed.items():
        Draft202012Validator(schema_of(kind)).validate(json.loads(msgspec.json.encode(result)))
