"""Locks of a shared device: processes of one host hold one around each step, one at a time."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

DeviceLock = Callable[[], AbstractContextManager[None]]
"""Returns a context with exclusive use of the device; entering it waits until the device is free."""

no_lock: DeviceLock = nullcontext
"""Never waits: for a device of one station, or of several that run concurrently."""


def device_lock(path: Path | None) -> DeviceLock:
    """Return the lock of a file; without one, a lock that never waits."""
    return no_lock if path is None else file_lock(path)


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
