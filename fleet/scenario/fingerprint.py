"""Fingerprints of all that a run of a scenario reads: they say whether a kept result still holds."""

import hashlib
import inspect
import os
from pathlib import Path

import msgspec

from specfleet.fleet.inputs.text import is_file
from specfleet.fleet.scenario.named_files import with_files, with_models
from specfleet.fleet.scenario.scenario import Scenario


def resume_digest(scenario: Scenario) -> str:
    """Fingerprint of the scenario, of the files that it names and of those of its rules that do not ship, if any.

    A file counts by its content. A model's folder counts by the names, sizes and times of change of its files, which
    are large.
    """
    named: list[str] = []

    def note(text: str) -> str:
        named.append(text)
        return text

    with_models(with_files(scenario, note), note)
    values = *msgspec.structs.astuple(scenario.drafters), *msgspec.structs.astuple(scenario.verifiers)
    rules = {type(value) for value in values if isinstance(value, msgspec.Struct)}
    there = [Path(text) for text in named if os.path.exists(text)]
    there += sorted(Path(inspect.getfile(rule)) for rule in rules if not rule.__module__.startswith("specfleet."))
    parts, digest = [_content(path) if is_file(path) else listing_digest(path) for path in there], scenario.digest()
    return hashlib.sha256("\n".join([digest, *parts]).encode()).hexdigest()[:16] if parts else digest


def listing_digest(folder: Path) -> str:
    """Fingerprint of a folder's list of files: their names, sizes and times of change."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _content(path: Path) -> str:
    """Fingerprint of a file's content; an unreadable file fails later, in the run."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"
