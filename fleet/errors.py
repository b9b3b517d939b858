"""The errors that users can cause, in one line each: bad input, an output that cannot be written, a killed process."""

from typing import Any


class InputError(Exception):
    """Bad input. The message is one line that names the file, the key, the value and what is allowed.

    The command line prints it and exits with status 2.
    """


class NodeDiedError(Exception):
    """A process of a running fleet died: somebody killed it, or the system did for its memory. The run is ended.

    The command line prints the message, which is one line, and exits with status 1.
    """


class ClusterError(NodeDiedError):
    """The workers of a sweep are gone, or one of them cannot run its cells; what was finished until then is kept."""


class OutputError(InputError):
    """A file could not be written, after the work was done; what was there before is as it was.

    The command line prints it and exits with status 1. `result`: what was computed, where the file was to hold it.
    """

    result: Any = None
