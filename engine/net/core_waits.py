"""How long threads of this process were ready to run and waited for a core, as the kernel counts it."""

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

TASKS = Path("/proc/self/task")
ZMQ_THREADS = "ZMQbg/IO"  # how ZeroMQ's threads that send and receive begin their names
OWN_USAGE = getattr(resource, "RUSAGE_THREAD", None)  # where the kernel tells it of one thread
SHORTEST_S = 10e-6  # off its core: less is how its two clocks differ
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

    def __del__(self) -> None:
        """Close what the kernel tells it by."""
        for file in self.files or ():
            with contextlib.suppress(OSError):
                os.close(file)

    def _total_s(self, files: Sequence[int]) -> float:
        return sum(_waited_s(file) for file in files)


class OwnCoreWaits(CoreWaits):
    """Counts the waits of the one thread that asks.

    It can have waited only if it was switched away since, which is cheaper to ask, and does not let go of the
    interpreter: between two drafts another thread would take it.
    """

    def __init__(self) -> None:
        super().__init__(lambda: [threading.get_native_id()])
        self.switches = -1
        self.begun_s = 0.0, 0.0  # by the thread's processor time, and by the clock
        self.held_s = 0.0  # counted since then

    def since_last_s(self) -> float:
        """As `CoreWaits.since_last_s`."""
        switches = _switches()
        if switches == self.switches >= 0:
            return 0.0
        self.switches = switches
        return super().since_last_s()

    def begin(self) -> None:
        """From now on, what the thread waits for holds something up; nothing is read for it but clocks."""
        began_s = time.perf_counter()  # first: a kernel that wants the core takes it where the other clock is asked
        self.begun_s = time.thread_time(), began_s
        self.held_s = 0.0

    def held_up_s(self) -> float:
        """Return how long the thread has waited for a core since `begin`, however often it is asked.

        That is what it has waited for since it was counted before that, which may have begun earlier, and no more than
        the time it was off its core.
        """
        cpu_s, began_s = self.begun_s
        off_core_s = cpu_s - time.thread_time() + time.perf_counter() - began_s
        if off_core_s < SHORTEST_S:
            return 0.0
        self.held_s += self.since_last_s()
        return min(self.held_s, off_core_s)


def _switches() -> int:
    """How often the calling thread was switched away; -1 where the kernel does not tell it."""
    if OWN_USAGE is None:
        return -1
    usage = resource.getrusage(OWN_USAGE)
    return usage.ru_nvcsw + usage.ru_nivcsw


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
