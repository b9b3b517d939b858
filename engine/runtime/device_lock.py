"""Turns on a shared device: a lock that processes of one host hold around each step, one at a time."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

DeviceLock = Callable[[], AbstractContextManager[None]]
"""Returns a context in which the caller has the device for itself; entering it waits for whoever has it."""

NOBODY_ELSE = nullcontext()


def no_lock() -> AbstractContextManager[None]:
    """Return a context that never waits: for a device that nobody else uses, or that is shared without turns."""
    return NOBODY_ELSE


def file_lock(path: Path) -> DeviceLock:
    """Return a lock that excludes all other holders of a lock on the same file, in whatever process."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)

    @contextmanager
    def lock() -> Iterator[None]:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    return lock
