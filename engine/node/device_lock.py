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
    """Return a lock that excludes all other holders of a lock on the same file, in whatever process.

    Without a file, return a lock that never waits.
    """
    if path is None:
        return no_lock
    file = os.open(path, os.O_RDWR | os.O_CREAT)

    @contextmanager
    def lock() -> Iterator[None]:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    return lock
