"""Threads with errors that reach the test that started them."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

MAX_S = 60.0


class Threads:
    """A pool for a test; `start` returns a future. Running threads of a failed test are left behind."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(16)

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.pool.shutdown(wait=kind is None, cancel_futures=True)

    def start(self, work: Callable[[], Any]) -> "Started":
        return Started(self.pool.submit(work))


class Started:
    """A thread that was started."""

    def __init__(self, future: "Future[Any]") -> None:
        self.future = future

    def result(self) -> Any:
        """Return its result; raises its error, or TimeoutError."""
        return self.future.result(MAX_S)
