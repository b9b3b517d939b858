"""Turns on a shared device: a lock that processes of one host hold around each step, one at a time."""

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

WaitedS = Callable[[], float]
"""Tells how long whoever has a device has waited for a core since its step has ended, in seconds."""

DeviceLock = Callable[[WaitedS], AbstractContextManager[float]]
"""Returns a context in which the caller has the device for itself; entering it waits for whoever has it.

It yields what the one before waited for a core until it let the device go, if that held up the caller.
"""

NOBODY_ELSE = nullcontext(0.0)
SECONDS = struct.Struct("d")


def no_lock(_waited_s: WaitedS) -> AbstractContextManager[float]:
    """Return a context that never waits: for a device that nobody else uses, or that is shared without turns."""
    return NOBODY_ELSE


def device_lock(path: Path | None) -> DeviceLock:
    """Return the lock of a file; without one, a lock that never waits."""
    return no_lock if path is None else file_lock(path)


def file_lock(path: Path) -> DeviceLock:
    """Return a lock that excludes all other holders of a lock on the same file, in whatever process.

    The file holds what the last of them waited.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, SECONDS.size)  # holders that are killed write nothing

    @contextmanager
    def lock(waited_s: WaitedS) -> Iterator[float]:
        before_s = 0.0
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_EX)
            (before_s,) = SECONDS.unpack(os.pread(file, SECONDS.size, 0))
        try:
            yield before_s
        finally:
            os.pwrite(file, SECONDS.pack(waited_s()), 0)
            fcntl.flock(file, fcntl.LOCK_UN)

    return lock
