"""The law of mutants itself: undocumented results are wrong, even with status 0."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import specfleet
from specfleet import cli
from tests.inputs.law import judged
from tests.inputs.results import problem_of

SMALL = {"workload.requests": 8, "workload.new_tokens": 24}


def printed_run() -> dict[str, Any]:
    result = specfleet.simulate("star", SMALL)
    verdicts = {"overload": result.overload, "notes": result.notes}
    return {"scenario": "star", "world": "sim", "seed": 0, "metrics": result.metrics, **verdicts}


PRINTED: dict[str, tuple[Callable[[], Any], tuple[str | int, ...]]] = {  # and the way to a number that must be there
    "simulate": (printed_run, ("metrics", "throughput", "value")),
    "analytic": (lambda: specfleet.analytic("star"), ("S_s",)),
    "show": (lambda: specfleet.show("star"), ("drafters", "count")),
    "compare": (
        lambda: specfleet.compare(*(specfleet.simulate("star", SMALL, seed=seed) for seed in (0, 1))),
        ("rows", 0, "sim"),
    ),
    "reproduce": (lambda: specfleet.reproduce("starsd-fig4"), ("score", "rows")),
}  # fmt: skip


@pytest.mark.parametrize("command", PRINTED)
def test_a_number_that_is_missing_or_infinite_is_wrong(command: str, tmp_path: Path) -> None:
    make, way = PRINTED[command]
    text = msgspec.json.encode(make())
    assert problem_of((command, "--json"), text.decode(), tmp_path) == ""
    for instead in ("null", "1e999", "NaN", '"text"'):
        content = json.loads(text)
        table = content
        for step in way[:-1]:
            table = table[step]
        table[way[-1]] = "INSTEAD"
        assert problem_of((command, "--json"), json.dumps(content).replace('"INSTEAD"', instead), tmp_path)
    assert problem_of((command, "--json"), text[:-1].decode(), tmp_path), "no JSON"


def test_an_interval_that_does_not_hold_its_value_is_wrong(tmp_path: Path) -> None:
    content = json.loads(msgspec.json.encode(printed_run()))
    metric = content["metrics"]["throughput"]
    for low, high, right in ((0.5, 2, True), (1.5, 2, False), (0.1, 0.5, False), (None, 1.5, False)):
        metric |= {"low": low and low * metric["value"], "high": high * metric["value"]}
        assert (problem_of(("simulate", "--json"), json.dumps(content), tmp_path) == "") == right


@pytest.mark.parametrize("name", ["x.png", "out.parquet"])
def test_a_file_that_cannot_be_read_back_is_wrong(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier file does not count."""
    result, path, arguments = specfleet.simulate("star", SMALL), tmp_path / name, ("figure", "-o", name)
    if name == "x.png":
        specfleet.figure("timeline", result, out=path)
    else:
        result.save(path)
    shutil.copy(path, tmp_path / "good")
    assert problem_of(arguments, "", tmp_path) == ""
    path.write_bytes(path.read_bytes()[:100])
    assert "cannot be read back" in problem_of(arguments, "", tmp_path)
    shutil.copy(tmp_path / "good", path)
    monkeypatch.setattr(cli, "main", lambda: sys.exit(0))
    assert judged(arguments, tmp_path) == ("wrong", f"{name} was not written")
