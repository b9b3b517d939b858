"""Ctrl-C and other signals that tell a process to end: the exception that they become, and how to put them off."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The process was told to end, by Ctrl-C or another signal. Like KeyboardInterrupt it is no Exception.

    `number`: of the signal. `kept`: in words, what of the work is on disk; whoever knows it says so.
    """

    def __init__(self, number: int, kept: str = "") -> None:
        super().__init__(number)
        self.number = number
        self.kept = kept

    @property
    def status(self) -> int:
        """The exit status by which shells tell that a signal ended a process: 128 and the signal's number."""
        return 128 + self.number

    def line(self) -> str:
        """Say in one line what ended the work, and what was kept of it."""
        how = "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        return f"{how}; {self.kept or 'nothing was written'}"


@contextmanager
def unseen(*numbers: int) -> Iterator[None]:
    """Start programs that never see these signals; this thread gets them afterwards.

    Ctrl-C goes to all processes of a terminal; those that serve another one leave it to that one to end them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def deferred() -> Iterator[None]:
    """Handle signals that end the process only after what is inside, which must not be torn.

    To block them would not do: another thread would take them, and Python handles them in the main one.
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
