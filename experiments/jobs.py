"""Simulations side by side in processes: results in order, as they come, and no process left behind."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, delayed


def side_by_side(call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Yield `call(*each)` for each of the arguments, in their order, `jobs` at once.

    Where whoever takes them stops early, by an error or a signal, the processes end with it.
    """
    if jobs <= 1:
        for each in arguments:
            yield call(*each)
        return
    with _interrupts_wait():
        results = Parallel(n_jobs=jobs, return_as="generator")(delayed(call)(*each) for each in arguments)
    try:
        yield from results
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of results that nobody takes any more
            results.close()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: it comes to all of a terminal, and their parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
