"""Signals that end a process, such as Ctrl-C: the exception they raise, and how to defer them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The process received Ctrl-C or another ending signal. Like KeyboardInterrupt, it is not an Exception.

    - `number`: the signal's number.
    - `kept`: which part of the work is on disk, in words; callers with results set it.
    """

    def __init__(self, number: int, kept: str = "") -> None:
        super().__init__(number)
        self.number = number
        self.kept = kept

    @property
    def status(self) -> int:
        """Exit status of a process that a signal ended: 128 + the signal's number."""
        return 128 + self.number

    def line(self) -> str:
        """Return one line: what ended the work, and what was kept."""
        how = "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        return f"{how}; {self.kept or 'nothing was written'}"


@contextmanager
def unseen(*numbers: int) -> Iterator[None]:
    """Start programs that never receive these signals; this thread receives them afterwards.

    Ctrl-C goes to all processes of a terminal; a child that serves this process leaves the end to it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer ending signals until the body, which must not be interrupted, is done.

    Blocking them is not enough: another thread would receive them, and Python handles them in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    came: list[int] = []
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
