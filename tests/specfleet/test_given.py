"""What users hand to the API: every change counts, in order; what cannot be is one line that says what is allowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.fleet.scenario.scenario import Scenario

SMALL: dict[str, Any] = {"workload.requests": 8, "workload.new_tokens": 8}


def test_keyword_tables_keep_changes_by_mapping() -> None:
    fleet = specfleet.show("star", {"drafters": {"depth": 3}, "drafters.count": 2}, drafters={"kind": "lookup"})
    assert (fleet.drafters.depth, fleet.drafters.count, fleet.drafters.kind) == (3, 2, "lookup")


def test_what_varies_changes_only_what_it_names() -> None:
    swept = specfleet.sweep("star", {"workload": [{"new_tokens": 9}]}, workload={"requests": 8}, seeds=1, jobs=1)
    alone = specfleet.simulate("star", {"workload.requests": 8, "workload.new_tokens": 9})
    assert swept.frame().throughput[0] == alone.metrics["throughput"].value


def test_a_named_policy_takes_parameters_by_dotted_key() -> None:
    chosen = specfleet.scenario_of("star", {"drafters.order": "weighted", "drafters.order.weights": [1, 2]})
    assert chosen == specfleet.scenario_of("star", {"drafters.order": {"policy": "weighted", "weights": [1, 2]}})
    tree = specfleet.scenario_of("star", {"drafters.shape": "tree", "drafters.shape.branching": [3]})
    assert tree.drafters.shape.branching == (3,)


def test_a_rule_of_lengths_replaces_the_depth_of_a_file() -> None:
    for rule in ({"verifiers.allocate": {"policy": "random-share", "budget": 9}}, {"drafters.overlap": "ahead"}):
        assert specfleet.scenario_of("star", rule).drafters.depth != specfleet.scenario_of("star").drafters.depth
        with pytest.raises(specfleet.InputError, match=r"leave drafters.depth out"):
            specfleet.scenario_of("star", rule | {"drafters.depth": 7})
    assert specfleet.scenario_of("star", {"drafters.overlap": "in-turn"}) == specfleet.scenario_of("star")


def test_python_scenarios_find_their_profiles() -> None:
    made = Scenario(profile="rtx-4090")
    assert specfleet.show(made).profile == "rtx-4090"
    assert specfleet.show(made, seed=0) == specfleet.show(made)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "values of another type in a scenario": (
        lambda: specfleet.simulate(Scenario(profile="rtx-4090", acceptance=3)),  # type: ignore[arg-type]
        "acceptance = 3",
    ),
    "an unknown world": (lambda: swept({"seed": [1]}, world="Sim"), "world = 'Sim' is not known; allowed: sim, engine"),
    "no seeds": (lambda: swept({"seed": [1]}, seeds=0), "seeds = 0: needs a whole number"),
    "half a seed": (lambda: swept({"seed": [1]}, seeds=1.5), "seeds = 1.5: needs a whole number from 1"),
    "no files to join": (lambda: specfleet.join([]), "no file is named"),
    "one value to vary": (lambda: swept({"verifiers.count": 4}), "vary: verifiers.count = 4: needs a list of values"),
    "a name to vary": (lambda: swept({"drafters.order": "fifo"}), "vary: drafters.order = 'fifo': needs a list of"),
    "a monstrous tree": (
        lambda: specfleet.show("star", {"drafters.shape": {"kind": "tree", "branching": [4]}, "drafters.depth": 8}),
        "drafters.shape: a tree with",
    ),
    "a value that holds itself": (lambda: specfleet.simulate("star", {"workload": endless()}), "no value of a"),
    "a change without a value": (lambda: specfleet.simulate("star", ["verifiers.count"]), "write KEY=VALUE"),
    "an empty key": (lambda: specfleet.simulate("star", {"": 1}), "key ''"),
    "a key with an empty part": (lambda: specfleet.simulate("star", {"drafters.": 3}), "key 'drafters.'"),
}


def swept(vary: Any, **options: Any) -> None:
    specfleet.sweep("star", vary, **options)


def endless() -> dict[str, Any]:
    table: dict[str, Any] = {}
    table["requests"] = table
    return table


@pytest.mark.parametrize("name", WRONG)
def test_impossible_values_are_one_line_with_those_allowed(name: str) -> None:
    act, message = WRONG[name]
    with pytest.raises(specfleet.InputError) as error:
        act()
    assert message in str(error.value)


@pytest.mark.parametrize("value", [object(), {3: 4}, b"bytes", [object()], {"depth": {1, 2}}, 10**30, float("inf")])
@pytest.mark.parametrize("key", ["drafters", "seed", "link", "profile"])
def test_a_wrong_type_is_one_line_with_its_key(key: str, value: Any) -> None:
    with pytest.raises(specfleet.InputError, match=key):
        specfleet.scenario_of("star", **{key: value})


def test_a_sweep_into_a_file_is_refused_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(specfleet.InputError, match="taken: is a file; name a folder"):
        specfleet.sweep("star", {"seed": [1]}, SMALL, out=tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
