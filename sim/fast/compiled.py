"""Compilation by numba, where it is installed."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def can_compile() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


# The loop allocates nothing, so nobody need count who holds its arrays, which takes half of its time.
UNCOUNTED = {"_nrt": False, "error_model": "numpy"}


def compiled(function: Function) -> Function:
    """Return the function as numba will compile it at its first call, kept on disk where a folder can be written.

    Numba tries the folder of the source file, then one of the user's (NUMBA_CACHE_DIR names another); where none can be
    written, it compiles anew in each process. Without numba the function stays as it is. It must not allocate arrays.
    """
    if not can_compile():
        return function
    from numba import njit  # noqa: PLC0415 (an optional extra, and a second to import)

    made: Any
    try:
        made = njit(cache=True, **UNCOUNTED)(function)
    except RuntimeError:  # no folder for the cache
        made = njit(**UNCOUNTED)(function)
    return cast("Function", made)
