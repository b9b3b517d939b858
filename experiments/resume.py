"""Whether a kept result still holds: a fingerprint of all that a run of a scenario reads."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from experiments.worlds import World
from fleet.chance.signals import SignalFile
from fleet.scenario.scenario import Scenario, Trace

DEMO = "demo"  # what ships is called so, and is no file of the user's


def resume_digest(scenario: Scenario, world: World) -> str:
    """Fingerprint of the scenario and of the files that its runs in that world read; without any, the scenario's own.

    Texts and signals count by their content, the files of a model by name, size and time of change: they are large.
    """
    parts = [
        *(_content(path) for path in _files(scenario, world)),
        *(_listing(path) for path in _models(scenario, world)),
    ]
    if not parts:
        return scenario.digest()
    return hashlib.sha256("\n".join([scenario.digest(), *parts]).encode()).hexdigest()[:16]


def _files(scenario: Scenario, world: World) -> Iterator[Path]:
    """Yield the files of the workload and of the acceptance model; the profile's numbers are in the scenario."""
    workload = scenario.workload
    if workload.conversations:
        yield Path(workload.conversations)
    if isinstance(workload.arrivals, Trace):
        yield Path(workload.arrivals.file)
    if isinstance(scenario.acceptance, SignalFile):
        yield Path(scenario.acceptance.file)
    if world == "engine" and workload.prompts.partition("/")[0] != DEMO:
        yield Path(workload.prompts)


def _models(scenario: Scenario, world: World) -> Iterator[Path]:
    if world == "engine":
        yield from (Path(model) for model in (scenario.drafters.model, scenario.verifiers.model) if model != DEMO)


def _content(path: Path) -> str:
    """Fingerprint of a file's content; a run will tell if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _listing(folder: Path) -> str:
    """Fingerprint of a folder's list of files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()
