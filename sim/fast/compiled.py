"""Compilation by numba, an optional extra: `pip install 'specfleet[fast]'`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from fleet.interrupts import deferred

Function = TypeVar("Function", bound=Callable[..., Any])

COMPILING = "compiling the simulator's fast loop, some seconds, once on this machine\n"

# The loop allocates nothing, so nobody need count who holds its arrays, which would take half of its time.
UNCOUNTED = {"_nrt": False, "error_model": "numpy"}


def compiled(function: Function) -> Function:
    """Return the function as numba will compile it at its first call, kept on disk where a folder can be written.

    Numba tries the folder of the source file, then one of the user's (NUMBA_CACHE_DIR names another); where none can be
    written, it compiles anew in each process. The function must not allocate arrays.
    """
    njit: Any = numba.njit  # whose types do not know "_nrt"
    try:
        made = njit(cache=True, **UNCOUNTED)(function)
    except RuntimeError:  # no folder for the cache
        made = njit(**UNCOUNTED)(function)
    return cast("Function", made)


def kept(function: Function) -> bool:
    """Whether a compiled function lies on disk, by the name of its file there: of its source, its line and Python."""
    made: Any = function
    code, folder = made.py_func.__code__, made.stats.cache_path
    python = "".join(map(str, sys.version_info[:2]))
    names = f"{Path(code.co_filename).stem}.{code.co_name}-{code.co_firstlineno}.py{python}*"
    return folder is not None and any(Path(folder).glob(names))


def ready(function: Function, *arguments: object) -> Function:
    """Return a compiled function once it is compiled for these arguments, or loaded from disk.

    Arguments are of the same types in every call: to look at them takes as long as 3,000 rounds. Signals wait while it
    is compiled: what one raises in the compiler's callbacks would be lost.
    """
    made: Any = function
    if not made.overloads:
        if not kept(function):
            sys.stderr.write(COMPILING)
        with deferred():
            made.compile(tuple(map(made.typeof_pyval, arguments)))
    return function
