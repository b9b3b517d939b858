"""Turns on a shared device: a lease that processes of one host hold around each step."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

Lease = Callable[[], AbstractContextManager[None]]


def no_lease() -> AbstractContextManager[None]:
    """Return a lease on a device that nobody else uses, or that is shared without turns."""
    return nullcontext()


def file_lease(path: Path) -> Lease:
    """Return a lease that excludes all other holders of a lease on the same file."""
    file = path.open("w")

    @contextmanager
    def lease() -> Iterator[None]:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    return lease
