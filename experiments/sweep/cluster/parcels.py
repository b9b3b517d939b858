"""Messages to the workers of a cluster, and their work: calls in chunks, with the files that they name.

A worker needs neither our folder nor our files: files that a scenario names are sent with it into the worker's
own folder. It does need the same versions, because only then are results the same.
"""

import hashlib
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module, resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fleet.files import write_file

CHUNK_S = 1.0  # after which a chunk comes back, done or not: no more is lost with a worker that is killed
LIBRARIES = ("specfleet", "numpy", "scipy", "simpy", "msgspec")
SOURCES = ("fleet", "sim", "experiments")  # what a cell runs

Files = Mapping[str, tuple[str, Any]]
"""A digest of what a file holds, and that, by the file's path."""

_one_at_a_time = threading.Lock()  # a worker may have several threads: they would share one interpreter


class Parcel(NamedTuple):
    """One call's arguments, and the paths of the files that it reads."""

    arguments: tuple[Any, ...]
    paths: tuple[str, ...] = ()


class ChunkResult(NamedTuple):
    """Results of a chunk's first calls, in their order; or, in words, why a worker ran none."""

    results: list[Any]
    refusal: str = ""


def run_chunk(
    call: Callable[..., Any], chunk: Sequence[tuple[Any, ...]], wanted: Mapping[str, str], files: Files
) -> ChunkResult:
    """Make the calls of a chunk until CHUNK_S have passed; the last argument of each is the paths of its files.

    This runs on a worker, which removes its folder at the end.
    """
    refusal = unlike(wanted, versions())
    if refusal:
        return ChunkResult([], refusal)
    results: list[Any] = []
    with _one_at_a_time:
        places = laid_out(files, Path(import_module("distributed").get_worker().local_directory)) if files else {}
        until_s = time.monotonic() + CHUNK_S
        while len(results) < len(chunk) and (not results or time.monotonic() < until_s):
            results.append(call(*chunk[len(results)], places))
    return ChunkResult(results)


def laid_out(files: Files, folder: Path) -> dict[str, str]:
    """Write files below a folder, unless they are there; return their new paths by their own paths.

    Each file keeps its name, because the suffix may say its format, and its place from one chunk to the next.
    """
    places = {}
    for path, (digest, content) in files.items():
        place = folder / "specfleet" / digest / (Path(path).name or "file")
        if not place.exists():
            write_file(place, content)
        places[path] = str(place)
    return places


@cache
def versions() -> dict[str, str]:
    """Return the versions that every worker must share, and a fingerprint of the sources that a cell runs."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES} | {"sources": _sources()}


def _sources() -> str:
    """Fingerprint of all modules that a cell may run: an editable installation changes without its version."""
    digest = hashlib.sha256()
    for package in SOURCES:
        folder = Path(str(resources.files(package)))
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{file.relative_to(folder).as_posix()}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def unlike(wanted: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Say which versions are not the wanted ones, as "has numpy 1.26.4 (here 2.4.6)"; empty where all are."""
    other = {name: ours for name, ours in wanted.items() if there.get(name) != ours}
    lacks = ", ".join(f"{name} {there.get(name, 'missing')} (here {ours})" for name, ours in other.items())
    return lacks and f"has {lacks}"
