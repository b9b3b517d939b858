"""Arguments of the API that are neither scenario nor changes: each is what it must be, or an InputError names it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.errors import InputError

MOST_COUNT = 10**6


def path_of(given: Any, what: str) -> Path:
    """Return a path; InputError, which names `what`, for anything else.

    >>> path_of("runs/a.parquet", "run").name
    'a.parquet'
    """
    if not isinstance(given, str | Path) or "\0" in str(given):
        raise InputError(f"{what} = {given!r}: needs a file")
    return Path(given)


def count_of(given: Any, what: str) -> int:
    """Return a whole number from 1 to MOST_COUNT; InputError, which names `what`, for anything else.

    >>> count_of(3, "seeds")
    3
    """
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_COUNT:
        raise InputError(f"{what} = {given!r}: needs a whole number from 1 to {MOST_COUNT}")
    return given


def text_of(given: Any, what: str) -> str:
    """Return a text; InputError, which names `what`, for anything else.

    >>> text_of("demo/calibration", "prompts")
    'demo/calibration'
    """
    if not isinstance(given, str):
        raise InputError(f"{what} = {given!r}: needs a text")
    return given


def flag_of(given: Any, what: str) -> bool:
    """Return True or False; InputError, which names `what`, for anything else.

    >>> flag_of(True, "quick")
    True
    """
    if not isinstance(given, bool):
        raise InputError(f"{what} = {given!r}: needs True or False")
    return given


def function_of(given: Any, what: str) -> Callable[..., Any]:
    """Return what can be called; InputError, which names `what`, for anything else.

    >>> function_of(print, "report").__name__
    'print'
    """
    if not callable(given):
        raise InputError(f"{what} = {given!r}: needs a function")
    function: Callable[..., Any] = given
    return function
