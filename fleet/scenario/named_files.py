"""Files and models that a scenario names by path, beside its profile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from specfleet.fleet.acceptance.signals import SignalFile
from specfleet.fleet.scenario.arrivals import Trace
from specfleet.fleet.scenario.lengths import TEXTS
from specfleet.fleet.scenario.scenario import Scenario

DEMO_PROMPTS = ("demo/evaluation", "demo/calibration")
NAMES = ("", *DEMO_PROMPTS, *TEXTS)  # shipped prompts and lengths, which are not the user's files


def with_files(scenario: Scenario, place: Callable[[str], str]) -> Scenario:
    """Return the scenario with every named file's path replaced by `place(path)`.

    Empty paths and names of shipped files are left alone, and so are folders of models.
    """
    workload, acceptance = scenario.workload, scenario.acceptance
    named = {key: getattr(workload, key) for key in ("prompts", "lengths")}
    workload = replace(workload, **{key: place(path) for key, path in named.items() if path not in NAMES})
    if isinstance(workload.arrivals, Trace):
        workload = replace(workload, arrivals=replace(workload.arrivals, file=place(workload.arrivals.file)))
    if isinstance(acceptance, SignalFile):
        acceptance = replace(acceptance, file=place(acceptance.file))
    return replace(scenario, workload=workload, acceptance=acceptance)


def without_paths(scenario: Scenario) -> Scenario:
    """Return the scenario without the paths of its files and models, which are those of each host."""
    return with_models(with_files(scenario, lambda _path: ""), lambda _model: "")


def absolute(scenario: Scenario) -> Scenario:
    """Return the scenario with the files and models that it names by absolute paths, so that it reads from anywhere."""
    return with_models(with_files(scenario, lambda path: str(Path(path).resolve())), _absolute)


def with_models(scenario: Scenario, place: Callable[[str], str]) -> Scenario:
    """Return the scenario with every model's name, of sides and tiers, replaced by `place(name)`."""

    def placed(of: Any) -> Any:
        return replace(of, model=place(of.model)) if of.model else of

    sides = ((key, placed(getattr(scenario, key))) for key in ("drafters", "verifiers"))
    return replace(scenario, **{key: replace(side, tiers=tuple(map(placed, side.tiers))) for key, side in sides})


def _absolute(model: str) -> str:
    """The absolute path of a model's folder that is there; "demo", and what is not there, stay as they are."""
    return str(Path(model).resolve()) if model not in ("", "demo") and Path(model).exists() else model
