"""Simulations side by side, in processes of this host or on a cluster: kept as they come, nothing is left behind."""

import hashlib
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from joblib import Parallel, delayed

from specfleet import fleet, sim
from specfleet.experiments.memory import keep_freed_memory
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.interrupts import deferred, unseen

TRACKERS = ("multiprocessing.resource_tracker", "joblib.externals.loky.backend.resource_tracker")
"""What starts first with the processes, and would let them see Ctrl-C."""
PARENT_S = 0.5  # between two looks at whether the parent still runs
Workers = int | str
"""Processes of this host, or the address of a Dask cluster's scheduler."""
ALL = slice(None)  # of a list


def read_shard(text: str, folder: object) -> slice:
    """Return the share of a list that `I/N` names: every N-th entry from the I-th on; of an empty text all.

    InputError without a folder for it, where the run of all finds it.
    """
    if not text:
        return ALL
    number, of = map(int, text.split("/")) if re.fullmatch(r"\d{1,6}/\d{1,6}", text) else (0, 0)
    if not 1 <= number <= of:
        raise InputError(f"--shard {text}: write I/N, I from 1 to N, for example 1/8")
    if not folder:
        raise InputError(f"--shard {text}: give --out, the folder where the run of all finds this share")
    return slice(number - 1, None, of)


def as_finished(
    call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], workers: Workers
) -> Iterator[tuple[int, Any]]:
    """Yield the place and result of `call(*given)` for each of the arguments: here in their order, on a cluster not.

    If the consumer stops early, by an error or a signal, the processes and what runs elsewhere end with it.
    """
    if isinstance(workers, str):
        cluster = import_module("specfleet.experiments.cluster")  # it needs Dask
        yield from cluster.finished(call, arguments, workers)
    else:
        with closing(_here(call, arguments, workers)) as results:
            yield from enumerate(results)


def side_by_side(
    call: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    workers: Workers,
    files: Sequence[Path] = (),
    kind: Any = Any,
) -> Iterator[Any]:
    """Yield the results of `as_finished` in order.

    - `files`: where each is kept as it comes, if anywhere; what is there already, of type `kind`, is not computed.
    """
    every = list(arguments)
    results = {place: kept for place, file in enumerate(files) if (kept := _read(file, kind)) is not None}
    missing = [place for place in range(len(every)) if place not in results]
    with closing(as_finished(call, [every[place] for place in missing], workers)) as finished:
        for place in range(len(every)):
            while place not in results:
                number, result = next(finished)
                results[missing[number]] = result
                if files:
                    write_file(files[missing[number]], msgspec.msgpack.encode(result), synced=False)
            yield results.pop(place)


def kept_file(folder: Path, name: str) -> Path:
    """Return the file of a folder for the result of that name with the code that runs here."""
    return folder / "cells" / f"{hashlib.sha256(f'{code()} {name}'.encode()).hexdigest()[:16]}.msgpack"


def _read(file: Path, kind: Any) -> Any:
    """Return what a file keeps; None where there is none, or it is damaged."""
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


@cache
def code() -> str:
    """Return the fingerprint of code and data that results follow from, and the version of numpy, which draws."""
    digest = hashlib.sha256()
    for room in (fleet.__file__, sim.__file__, __file__):
        for file in sorted(Path(str(room)).parent.rglob("*.*")):
            digest.update(file.read_bytes() if file.suffix in (".py", ".toml", ".json") else b"")
    return f"specfleet {digest.hexdigest()[:8]}, numpy {np.__version__}"


def _here(call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], jobs: int) -> Generator[Any, None, None]:
    """Yield results in order, `jobs` at once."""
    if jobs <= 1:
        for given in arguments:
            yield call(*given)
        return
    _start_trackers()
    results: Generator[Any, None, None] | None = None
    try:
        with deferred(), unseen(signal.SIGINT):  # half started, a process would complain
            start = {"initializer": _prepare_process, "initargs": (os.getpid(),)}
            parallel = Parallel(n_jobs=jobs, return_as="generator", **start)
            results = parallel(delayed(call)(*given) for given in arguments)
        while True:
            with _unheard():  # a signal ends them from within
                try:
                    result = next(results)
                except StopIteration:
                    return
            yield result
    finally:
        with _unheard(), _threads_unheard():
            if results is not None:
                results.close()


def _prepare_process(parent: int) -> None:
    """Prepare a process of the program `parent`, before its first call."""
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has ended: joblib's processes would wait for minutes."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(1)


def _start_trackers() -> None:
    """Start the trackers, which print no warnings then: about semaphores, after the last line of output."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        for tracker in TRACKERS:
            with suppress(ImportError):
                import_module(tracker).ensure_running()
    finally:
        del os.environ["PYTHONWARNINGS"]
        if before is not None:
            os.environ["PYTHONWARNINGS"] = before


@contextmanager
def _unheard() -> Iterator[None]:
    """Silence messages about unread results, and about a worker that grew and was replaced."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(executed|still being processed|A worker stopped)")
        yield


@contextmanager
def _threads_unheard() -> Iterator[None]:
    """The thread that looks after processes may be in the middle of something when they are killed under it."""
    before = threading.excepthook
    threading.excepthook = lambda _error: None
    try:
        yield
    finally:
        threading.excepthook = before
