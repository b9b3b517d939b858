"""Fingerprints of all that a run of a scenario reads: they say whether a kept result still holds."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from specfleet.fleet.inputs.text import is_file
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.sides import without_profiles


def resume_digest(scenario: Scenario) -> str:
    """Fingerprint of the scenario and of the files that it names; without any, the scenario's own.

    Every text in it that is a file's path counts by that file's content, so that no key can be forgotten. A model's
    folder counts by the names, sizes and times of change of its files, which are large.
    """
    content = msgspec.to_builtins(without_profiles(scenario))  # their numbers are in the scenario
    parts = [_content(Path(text)) for text in _texts(content) if is_file(Path(text))]
    sides = scenario.drafters, scenario.verifiers
    models = [Path(each.model) for side in sides for each in (side, *side.tiers) if each.model]
    parts += [listing_digest(folder) for folder in models if folder.is_dir()]
    if not parts:
        return scenario.digest()
    return hashlib.sha256("\n".join([scenario.digest(), *parts]).encode()).hexdigest()[:16]


def listing_digest(folder: Path) -> str:
    """Fingerprint of a folder's list of files: their names, sizes and times of change."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _content(path: Path) -> str:
    """Fingerprint of a file's content; an unreadable file fails later, in the run."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"
