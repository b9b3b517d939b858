"""The parts of the check, and the folder in which they leave their results: one file each, then one for all."""

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.decoding.telemetry import host_facts
from experiments.gpu_check import benchmark, laws, steps, suite
from experiments.gpu_check.place import Place, say
from fleet.files import write_file

Result = dict[str, object]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the check: what it is about, in one line, and the function that runs it."""

    about: str
    run: Callable[[Place], Result]


PARTS = {
    "laws": Part("whether the engine's laws hold on the device, in every precision", laws.run),
    "tests": Part("whether the engine's tests pass on this machine", suite.run),
    "benchmark": Part("tokens a second of the demo pair beside transformers, alone and in batches", benchmark.run),
    "steps-demo": Part("step times of the demo pair", steps.run_demo),
    "steps-7b-eagle": Part("step times of a 7B target and an EAGLE head", steps.run_7b_eagle),
    "steps-7b-1b": Part("step times of a 7B target and a 1B drafter", steps.run_7b_1b),
}


@dataclass(frozen=True, slots=True)
class Folder:
    """Results of a check, under `path`."""

    path: Path

    def file(self, name: str) -> Path:
        """Where the result of a part is."""
        return self.path / "parts" / f"{name}.json"

    def read(self, name: str, place: Place) -> Result | None:
        """Return the result of a part that ended here, None if there is none."""
        try:
            result = json.loads(self.file(name).read_text())
        except (OSError, ValueError):
            return None
        return result if result.get("facts") == place.facts() and "error" not in result else None

    def write(self, path: Path, content: Result) -> None:
        """Write a file, whole or not at all."""
        write_file(path, json.dumps(content, indent=1) + "\n")

    def merge(self, place: Place) -> bool:
        """Write one file of all results that there are; return whether none is missing and everything holds."""
        facts, unread = host_facts()
        found = {name: self.read(name, place) for name in PARTS}
        parts = {name: result for name, result in found.items() if result is not None}
        missing = [name for name in PARTS if name not in parts]
        content: Result = {"host": facts, "unread": unread, **place.facts(), "missing": missing, "parts": parts}
        self.write(self.path / "check.json", content)
        return not missing and all(holds(result) for result in parts.values())


def holds(result: Result | None) -> bool:
    """Whether a part ended, and found nothing broken."""
    return result is not None and result.get("holds", True) is True


def run_part(name: str, folder: Folder, place: Place, again: bool) -> bool:
    """Run a part unless its result is there, and write its result; return whether it ended well."""
    known = folder.read(name, place)
    if known is not None and not again:
        say(f"{name}: done before")
        return holds(known)
    say(f"{name}: {PARTS[name].about}")
    started_s = time.perf_counter()
    try:
        result = PARTS[name].run(place)
    except torch.OutOfMemoryError as error:
        result = {"result": f"skipped: {error}"}
    except Exception as error:  # noqa: BLE001  (whatever broke a part, its file keeps it and the others still run)
        say(f"{name}: broke off: {error}")
        result = {"error": traceback.format_exc(), "holds": False}
    time_s = time.perf_counter() - started_s
    folder.write(folder.file(name), {"part": name, "facts": place.facts(), "time_s": time_s, **result})
    say(f"{name}: {'holds' if holds(result) else 'BROKEN'}, after {time_s:.0f} s")
    return holds(result)
