"""How long threads of this process were ready to run and waited for a core, as the kernel counts it."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

TASKS = Path("/proc/self/task")
ZMQ_THREADS = "ZMQbg"  # how ZeroMQ's background threads begin their names
MOST = 64  # characters of a line of schedstat


class CoreWaits:
    """Counts the waits of some threads of this process: those that `threads` names when it is asked first.

    A wait is counted once, by whichever thread asks first after it. Where the kernel does not tell, all are 0.
    """

    def __init__(self, threads: Callable[[], Sequence[int]]) -> None:
        self.threads = threads
        self.files: list[int] | None = None
        self.counted_s = 0.0
        self.asking = threading.Lock()

    def since_last_s(self) -> float:
        """Return how long the threads have waited since the last call, all together; 0 at the first call."""
        with self.asking:
            if self.files is None:
                self.files = [_opened(thread) for thread in self.threads()]
                self.counted_s = self._total_s(self.files)
            counted_s, self.counted_s = self.counted_s, self._total_s(self.files)
            return max(self.counted_s - counted_s, 0.0)

    def close(self) -> None:
        """Close what the kernel tells it by; nothing is counted any more."""
        with self.asking:
            files, self.files = self.files or [], []
            for file in files:
                if file >= 0:
                    os.close(file)

    def _total_s(self, files: Sequence[int]) -> float:
        return sum(_waited_s(file) for file in files)


def this_thread() -> list[int]:
    """Return the thread that calls."""
    return [threading.get_native_id()]


def all_threads() -> list[int]:
    """Return all threads that the process has by now."""
    return [int(task.name) for task in TASKS.iterdir()] if TASKS.is_dir() else []


def zmq_threads() -> list[int]:
    """Return ZeroMQ's own threads, which send and receive."""
    return [thread for thread in all_threads() if _name_of(thread).startswith(ZMQ_THREADS)]


def _name_of(thread: int) -> str:
    try:
        return (TASKS / str(thread) / "comm").read_text()
    except OSError:  # it has ended
        return ""


def _opened(thread: int) -> int:
    try:
        return os.open(TASKS / str(thread) / "schedstat", os.O_RDONLY)
    except OSError:  # it has ended, or the kernel does not tell
        return -1


def _waited_s(file: int) -> float:
    if file < 0:
        return 0.0
    try:
        return 1e-9 * int(os.pread(file, MOST, 0).split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
