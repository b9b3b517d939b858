"""A command's printed and written results against their documentation, for any input."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from matplotlib.image import imread

from specfleet.experiments.compare.compare import Comparison
from specfleet.experiments.reproduce.rows import Reproduction
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.sweep import TABLE
from specfleet.fleet.records.metrics.overload import Overload
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import read_run
from specfleet.fleet.scenario.names import World
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.times.profile import HardwareProfile, read_profile
from specfleet.sim.analytic import StarPrediction
from specfleet.sim.run import simulate


class PrintedRun(msgspec.Struct, frozen=True):
    """What `simulate --json` and `run --json` print."""

    scenario: str
    world: World
    seed: int
    metrics: dict[str, Metric]
    overload: Overload | None
    notes: list[str]


class PrintedImport(msgspec.Struct, frozen=True):
    """What `import --json` prints."""

    scenario: str
    files: list[str]
    format: str
    rounds: int
    accepted: int
    mean_acceptance_length: float
    stated: float | None
    modelled: float | None
    notes: list[str]


PRINTED: dict[str, Any] = {
    "simulate": PrintedRun, "run": PrintedRun, "show": Fleet, "analytic": StarPrediction, "compare": Comparison,
    "reproduce": Reproduction, "import": PrintedImport, "export": dict[str, str],
    "profile": HardwareProfile,
}  # fmt: skip
NO_NUMBER = {"low", "high", "times_longer"}
"""Keys of numbers that need not be there: JSON has null for NaN and infinity. What else may be null, its type says."""


def problem_of(arguments: Sequence[str], printed: str, folder: Path) -> str:
    """Return the fault of a command's results in a folder; empty if there is none."""
    if "--json" in arguments:
        problem = _of_json(printed, PRINTED[arguments[0]])
    else:
        problem = f"prints {printed[:500]}" if {"nan", "inf"} & set(printed.split()) else ""
    return problem or _of_file(written_by(arguments, folder))


def written_by(arguments: Sequence[str], folder: Path) -> Path | None:
    """Return the output file or folder of a command, if any."""
    return folder / arguments[arguments.index("-o") + 1] if "-o" in arguments else None


def _of_json(text: str | bytes, kind: Any) -> str:
    """Return the fault of JSON: no number, or null where neither NO_NUMBER nor its type allows it."""
    try:
        content = json.loads(text)
        msgspec.convert(_filled(content), kind)
    except ValueError as error:  # msgspec's are, too
        return f"not as documented: {error}"
    for place, number in _numbers(content):
        if not math.isfinite(number):
            return f"{place} = {number}"
    for name, metric in content.get("metrics", {}).items():
        low, value, high = (metric[key] for key in ("low", "value", "high"))
        if (low is None) != (high is None) or (low is not None and not low <= value <= high):
            return f"{name} = {value} with interval {low} .. {high}"
    return ""


def _filled(content: Any) -> Any:
    """Return content with a number wherever NO_NUMBER allows none."""
    if isinstance(content, list):
        return [_filled(item) for item in content]
    if not isinstance(content, dict):
        return content
    absent = NO_NUMBER | ({"error"} if content.get("engine") == 0 else set())  # relative to nothing
    return {key: _with_numbers(value) if key in absent else _filled(value) for key, value in content.items()}


def _with_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    return 0.0 if value is None else value


def _numbers(content: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Yield each number of JSON with its place."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _numbers(value, f"{place}.{key}")
    elif isinstance(content, list):
        for value in content:
            yield from _numbers(value, f"{place}[]")
    elif isinstance(content, int | float):
        yield place, content


def _of_file(path: Path | None) -> str:
    """Return the fault of a written file, or of the folder of a sweep; empty if it can be read back."""
    if path is None:
        return ""
    if not path.exists():
        return f"{path.name} was not written"
    if path.is_dir():
        return _of_sweep(path)
    try:
        if path.suffix == ".parquet":
            contradictions = replay(read_run(path))
            return f"does not replay: {contradictions[0]}" if contradictions else ""
        if path.suffix == ".toml":  # of an import: it simulates at once, and with any profile
            simulate(read_scenario(path, {"profile": "a100", "workload.requests": 3}))
        if path.suffix == ".json":
            read_profile(path)
        shows = path.suffix in (".toml", ".json") or imread(path).std() > 0
    except Exception as error:  # noqa: BLE001  (whatever a library that reads such files raises)
        return f"{path.name} cannot be read back: {error!r}"
    return "" if shows else f"{path.name} is a picture of nothing"


def _of_sweep(folder: Path) -> str:
    table = pd.read_csv(folder / TABLE)
    if not table.value.map(math.isfinite).all():
        return f"{TABLE} holds what is no number"
    for file in (folder / "cells").iterdir():
        if problem := _of_json(file.read_bytes(), CellResult):
            return f"{file.name}: {problem}"
    return ""
