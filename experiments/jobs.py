"""Simulations side by side in processes: results in order, as they come, and no process left behind."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from joblib import Parallel, delayed

from specfleet.experiments.memory import keep_freed_memory
from specfleet.fleet.interrupts import deferred, unseen

TRACKERS = ("multiprocessing.resource_tracker", "joblib.externals.loky.backend.resource_tracker")
"""What starts first with the processes, and would let them see Ctrl-C."""
PARENT_S = 0.5  # between two looks at whether the parent still runs


def side_by_side(call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Yield `call(*given)` for each of the arguments, in their order, `jobs` at once.

    If the consumer stops early, by an error or a signal, the processes end with it.
    """
    if jobs <= 1:
        for given in arguments:
            yield call(*given)
        return
    with _silent_programs():
        for tracker in TRACKERS:
            with suppress(ImportError):
                import_module(tracker).ensure_running()
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


@contextmanager
def _silent_programs() -> Iterator[None]:
    """Start programs that print no warnings.

    Silences resource_tracker warnings about semaphores that were removed after the last line of output.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        yield
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
