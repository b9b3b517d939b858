"""How long threads of this process were ready to run and waited for a core, as the kernel counts it."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

TASKS = Path("/proc/self/task")
ZMQ_THREADS = "ZMQbg"  # how ZeroMQ's background threads begin their names
MOST = 64  # characters of a line of schedstat


class CoreWaits:
    """Counts the waits of some threads of this process.

    A wait is counted once: by whoever asks first after it. Where the kernel does not tell, all are 0.
    """

    def __init__(self, threads: Callable[[], Sequence[int]]) -> None:
        self.threads = threads
        self.files: list[int] = []
        self.counted_s = 0.0

    def since_last_s(self) -> float:
        """Return how long the threads have waited since the last call, all together; 0 at the first call."""
        if not self.files:
            self.files = [_opened(thread) for thread in self.threads()]
            self.counted_s = self._total_s()
        counted_s, self.counted_s = self.counted_s, self._total_s()
        return max(self.counted_s - counted_s, 0.0)

    def _total_s(self) -> float:
        return sum(_waited_s(file) for file in self.files)


def this_thread() -> list[int]:
    """Return the thread that calls."""
    return [threading.get_native_id()]


def all_threads() -> list[int]:
    """Return all threads that the process has by now."""
    return [int(task.name) for task in TASKS.iterdir()]


def zmq_threads() -> list[int]:
    """Return ZeroMQ's own threads, which send and receive."""
    return [int(task.name) for task in TASKS.iterdir() if _name_of(task).startswith(ZMQ_THREADS)]


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""


def _opened(thread: int) -> int:
    try:
        return os.open(TASKS / str(thread) / "schedstat", os.O_RDONLY)
    except OSError:
        return -1


def _waited_s(file: int) -> float:
    if file < 0:
        return 0.0
    try:
        return 1e-9 * int(os.pread(file, MOST, 0).split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
