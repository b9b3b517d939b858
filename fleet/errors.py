"""Errors that users can cause, each one line: bad input, an unwritable output, a killed process, a full device."""

from pathlib import Path
from typing import Any

MOST = 1500  # characters of a line


def cut(text: str, most: int) -> str:
    """Return a text, cut in its middle beyond `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


class InputError(ValueError):
    """Bad input. The message is one line that names the file, the key, the value and what is allowed.

    The command line prints it and exits with status 2. However long the values in it are, it has MOST characters.
    """

    def __str__(self) -> str:
        return cut(super().__str__(), MOST)


class OtherFormatError(InputError):
    """A file is not of the format that was asked for.

    - `path`: the file, which may be another tool's.
    """

    def __init__(self, message: str, path: Path = Path()) -> None:
        super().__init__(message)
        self.path = path


class ContextError(InputError):
    """A text and its draft are longer than the positions of a model."""


class MisfitError(InputError):
    """A drafter does not fit its target, or a model its device."""


class DeviceMemoryError(InputError):
    """A process needs more memory than its device has."""


class NodeDiedError(Exception):
    """A process of a running fleet died, by a signal or for lack of memory. The run ends.

    The command line prints the one-line message and exits with status 1.
    """


class NodeKilledError(NodeDiedError):
    """A process was killed by SIGKILL, as Linux does where memory is short: a Jetson's GPU shares it with the host."""


class OutputError(InputError):
    """A file could not be written after the work was done; an earlier file is unchanged.

    The command line prints it and exits with status 1.

    - `result`: what was computed and not written.
    """

    result: Any = None


class UnsteadyHostError(OutputError):
    """A calibration gave a result that no steady host gives, twice. No profile is written unless that is accepted.

    - `result`: the profile that was refused.
    """
