"""What users can cause, in one line each: bad input, an output that cannot be written, an interrupted run."""

import signal
from typing import Any


class InputError(Exception):
    """Bad input. The message is one line that names the file, the key, the value and what is allowed.

    The command line prints it and exits with status 2.
    """


class OutputError(InputError):
    """A file could not be written, after the work was done; what was there before is as it was.

    The command line prints it and exits with status 1. `result`: what was computed, where the file was to hold it.
    """

    result: Any = None


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
