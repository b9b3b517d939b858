"""The files that a scenario names by path, beside its profile: all in one place, so that none is forgotten."""

from collections.abc import Callable

from msgspec.structs import replace

from fleet.acceptance.places import ByPlace
from fleet.acceptance.signals import SignalFile
from fleet.scenario.arrivals import Trace
from fleet.scenario.lengths import TEXTS
from fleet.scenario.scenario import Scenario

DEMO_PROMPTS = ("demo/evaluation", "demo/calibration")
NAMES = ("", *DEMO_PROMPTS, *TEXTS)  # of prompts and lengths that ship, and are no files of the user


def with_files(scenario: Scenario, place: Callable[[str], str]) -> Scenario:
    """Return the scenario with the path of every file that it names replaced by what `place` makes of it.

    What is empty, or the name of something that ships, names none. Folders of models are no part of it.

    >>> with_files(Scenario(), str.upper) == Scenario()
    True
    """
    workload, acceptance = scenario.workload, scenario.acceptance
    named = {key: getattr(workload, key) for key in ("prompts", "conversations", "lengths")}
    workload = replace(workload, **{key: place(path) for key, path in named.items() if path not in NAMES})
    if isinstance(workload.arrivals, Trace):
        workload = replace(workload, arrivals=replace(workload.arrivals, file=place(workload.arrivals.file)))
    if isinstance(acceptance, SignalFile | ByPlace):
        acceptance = replace(acceptance, file=place(acceptance.file))
    return replace(scenario, workload=workload, acceptance=acceptance)
