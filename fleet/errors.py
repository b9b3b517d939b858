"""The one error that a user can cause: bad input, described in one line."""


class InputError(Exception):
    """Bad input. The message is one line that names the file, the key, the value and what is allowed.

    The command line prints it and exits with status 2.
    """
