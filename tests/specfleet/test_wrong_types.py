"""Calls with arguments of wrong types: each is one line that names the argument, before anything runs."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import specfleet
from fleet.errors import InputError

STRANGE: tuple[Any, ...] = (
    3,
    -1,
    2.5,
    True,
    float("nan"),
    object(),
    b"bytes",
    [3],
    {3: 4},
    {"a"},
    lambda: None,
    "\0",
    int,
    ...,
)
GOOD: dict[str, dict[str, Any]] = {
    "simulate": {"scenario": "star", "changes": {"workload.requests": 8}},
    "run": {"scenario": "star"},
    "analytic": {"scenario": "star"},
    "show": {"scenario": "star"},
    "sweep": {
        "scenario": "star",
        "vary": {"verifiers.count": [1]},
        "changes": {"workload.requests": 8},
        "jobs": 1,
        "seeds": 1,
    },
    "compare": {"first": "a.parquet", "second": "b.parquet"},
    "calibrate": {},
    "estimate": {"target": "llama-3.1-8b@h100", "draft": "llama-3.2-1b@h100"},
    "reproduce": {"name": "batch-table2"},
    "export": {"scenario": "star"},
    "import_record": {"kind": "vllm", "files": "a.json", "out": "a.toml", "draft_ms": 2.0, "verify_ms": 9.0},
    "figure": {"name": "timeline", "results": "a.parquet"},
    "report": {"results": "a.parquet"},
    "read_run": {"path": "a.parquet"},
    "scenario_of": {"given": "star"},
}
RIGHT = {("sweep", "seeds"): [3], ("sweep", "jobs"): [3], ("calibrate", "quick"): [True]}
FUNCTIONS = ("report", "done", "watch")


def cases() -> list[tuple[str, str]]:
    found = []
    for name in GOOD:
        parameters = inspect.signature(getattr(specfleet, name)).parameters.values()
        found += [(name, parameter.name) for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
    return found


@pytest.mark.parametrize(("name", "argument"), cases())
def test_an_argument_of_a_wrong_type_is_one_line(name: str, argument: str) -> None:
    function: Callable[..., Any] = getattr(specfleet, name)
    right = RIGHT.get((name, argument), [])
    for value in STRANGE:
        if value in right or (argument in FUNCTIONS and callable(value)):
            continue
        with pytest.raises(InputError) as refusal:
            function(**GOOD[name] | {argument: value})
        assert "\n" not in str(refusal.value)


def test_what_is_told_of_notes_is_checked_before_the_first_of_them() -> None:
    """Texts whose ends nobody knows have a note, which is told at the beginning."""
    with pytest.raises(InputError, match="report"):
        specfleet.simulate("star", {"workload.requests": 8, "workload.ignore_eos": False}, report=3)  # type: ignore


@pytest.mark.parametrize("value", [object(), {3: 4}, b"bytes", [object()], {"depth": {1, 2}}, 10**30, float("inf")])
@pytest.mark.parametrize("key", ["drafters", "seed", "link", "profile"])
def test_a_key_of_a_wrong_type_is_one_line(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=key) as refusal:
        specfleet.scenario_of("star", **{key: value})
    assert "\n" not in str(refusal.value)
