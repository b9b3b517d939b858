"""Scenarios: values are read as written, and errors are one helpful line."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import change_scenario, make_scenario, read_scenario, scenario_of
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.sim.run import simulate
from tests.helpers.stars import star


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return file


def test_a_scenario_without_profile_or_acceptance_says_which_is_missing() -> None:
    with pytest.raises(InputError, match="profile is missing"):
        simulate(make_scenario({}))
    with pytest.raises(InputError, match="acceptance is missing"):
        simulate(make_scenario({"profile": {"name": "p", "draft": {}, "verify": {}}}))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"drafters": {"depth": 3}}, (3, "beta-geometric")),  # a table changes what it names
        ({"drafters.depth": 3, "acceptance": {"b": 9.0}}, (3, "beta-geometric")),
        ({"acceptance": {"model": "geometric", "beta": 0.5}}, (7, "geometric")),  # another kind of thing replaces it
        (["acceptance={model = 'geometric', beta = 0.5}", "drafters={order = 'fifo'}"], (7, "geometric")),
        ({"acceptance": Geometric(0.5)}, (7, "geometric")),
    ],
)
def test_a_change_that_is_a_table_merges_or_replaces(changes: Any, expected: tuple[int, str], tmp_path: Path) -> None:
    file = written(tmp_path, 'acceptance = {model = "beta-geometric", a = 2.0, b = 1.0}\n[drafters]\ndepth = 7\n')
    for changed in (read_scenario(file, changes), change_scenario(read_scenario(file), changes)):
        assert (changed.drafters.depth, msgspec.to_builtins(changed.acceptance)["model"]) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(np.int64(3), (3,)), (np.arange(2), (0, 1)), (range(1, 3), (1, 2)), ([5], (5,))]
)
def test_changes_may_be_what_python_computes_with(value: Any, expected: tuple[int, ...]) -> None:
    numbers = [value] if isinstance(value, np.int64) else value
    changes = {"drafters.order": "priority", "verifiers.priorities": numbers}
    assert change_scenario(star(), changes).verifiers.priorities == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "x" * 1001}, f"name = '{'x' * 99} ... {'x' * 49}': expected `str` of length <= 1000"),
        ({"name.first": "x"}, "name.first = 'x': name = 'unnamed' is a value, not a table"),
        ({"verifiers.count": object()}, "verifiers.count = <object .*>: no value of a scenario; allowed: a number"),
        ({"drafters": 3}, "drafters = 3: .*; it is a table: set a key in it, such as drafters.count$"),
        ({"acceptance": 0.6}, "acceptance = 0.6: .*, such as acceptance.beta$"),
    ],
)
def test_a_change_that_no_scenario_can_take_is_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        change_scenario(star(), changes)


@pytest.mark.parametrize("name", shipped_files("scenarios"))
def test_a_changed_scenario_is_the_changed_file(name: str) -> None:
    changes = {"seed": 7, "measure.warm_up_share": 0.2}
    file = shipped_files("scenarios")[name]
    assert change_scenario(read_scenario(file), changes) == read_scenario(file, changes)


@pytest.mark.parametrize("name", shipped_files("scenarios"))
def test_a_written_scenario_reads_back(name: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"name": 'a "\\é💥\n\x7f'}
    if name == "star":
        changes |= {"drafters.device": "my.gpu 1", "devices": {"my.gpu 1": {}}}
    scenario = scenario_of(name, changes)
    assert read_scenario(written(tmp_path, "\n".join(scenario_lines(scenario))), base=Path()) == scenario


def test_a_profile_that_does_not_parse_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"name": "mine", "draft": {"base": 1}, "verify": {}}')
    with pytest.raises(InputError, match=r"mine\.toml: .*mine\.json.*draft\.base = 1; nearest: base_s"):
        read_scenario(written(tmp_path, 'profile = "mine.json"'))
