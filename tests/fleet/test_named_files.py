"""Every file that a scenario names is relative to the scenario's folder; the demo's prompts are names, not files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specfleet.fleet.scenario.named_files import DEMO_PROMPTS, absolute, with_files, without_paths
from specfleet.fleet.scenario.reading import make_scenario, read_scenario
from specfleet.fleet.scenario.scenario import Scenario
from tools.reference.entries import described_keys

RUN = {"model": "signals", "file": "sub/x"}
NAMED: dict[str, dict[str, Any]] = {
    "Workload.prompts": {"workload": {"prompts": "sub/x"}},
    "Workload.lengths": {"workload": {"lengths": "sub/x"}},
    "Trace.file": {"workload": {"arrivals": {"process": "trace", "file": "sub/x"}}},
    "SignalFile.file": {"verifiers": {"allocate": "dsde"}, "acceptance": RUN},
}
"""A scenario's tables, by the struct and key that name a file in them."""


TIERS = [
    {"first": 2, "model": "small"}, {"first": 3, "link": {"latency_s": 0.1}}, {"first": 4, "model": "elsewhere"}
]  # fmt: skip


def paths_of(scenario: Scenario) -> list[str]:
    found: list[str] = []

    def keep(path: str) -> str:
        found.append(path)
        return path

    assert with_files(scenario, keep) == scenario
    return found


def structs_of(kind: msgspec.inspect.Type) -> Iterator[type]:
    """Yield the structs of a type, and those of their fields."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind.cls
        for field in kind.fields:
            yield from structs_of(field.type)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            yield from structs_of(one)


def test_every_file_key_is_listed() -> None:
    """The profile is read at once."""
    named = {
        f"{struct.__name__}.{key}"
        for struct in structs_of(msgspec.inspect.type_info(Scenario))
        for key, (what, _, _) in described_keys(struct).items()
        if "relative to the scenario's folder" in what
    }
    assert named == {*NAMED, "Scenario.profile"}


@pytest.mark.parametrize("key", NAMED)
def test_a_file_is_found_from_the_folder_of_the_scenario(key: str, tmp_path: Path) -> None:
    assert paths_of(make_scenario(NAMED[key], base=tmp_path)) == [str(tmp_path / "sub" / "x")]


@pytest.mark.parametrize("key", NAMED)
def test_an_absolute_scenario_names_the_same_file_from_anywhere(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file is not there, or not yet."""
    monkeypatch.chdir(tmp_path)
    moved = absolute(make_scenario(NAMED[key], base=Path("here")))
    assert paths_of(moved) == [str(tmp_path / "here" / "sub" / "x")]
    assert paths_of(make_scenario(msgspec.to_builtins(moved), base=Path("elsewhere"))) == paths_of(moved)


@pytest.mark.parametrize("name", [*DEMO_PROMPTS, ""])
def test_demo_prompts_and_empty_prompts_are_no_files(name: str, tmp_path: Path) -> None:
    scenario = make_scenario({"workload": {"prompts": name}}, base=tmp_path)
    assert absolute(scenario).workload.prompts == scenario.workload.prompts == name


@pytest.mark.parametrize("name", ["demos/x.jsonl", "demo/x.jsonl", "demo"])
def test_prompt_paths_that_begin_like_demos_are_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(make_scenario({"workload": {"prompts": name}})).workload.prompts == str(tmp_path / name)
    (tmp_path / "mine.toml").write_text(f"workload.prompts = '{name}'\n")
    assert read_scenario(tmp_path / "mine.toml").workload.prompts == str(tmp_path / name)


def test_models_of_tiers_move_as_those_of_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    sides = {side: {"model": "small", "count": 4, "tiers": TIERS} for side in ("drafters", "verifiers")}
    moved, bare = absolute(make_scenario(sides)), without_paths(make_scenario(sides))
    for side in (moved.drafters, moved.verifiers):
        here = str(tmp_path / "small")
        assert [each.model for each in (side, *side.tiers)] == [here, here, msgspec.UNSET, "elsewhere"]
    assert [each.model for each in (bare.verifiers, *bare.verifiers.tiers)] == ["", "", msgspec.UNSET, ""]
