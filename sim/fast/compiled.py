"""Compilation by numba, an optional extra: `pip install 'specfleet[fast]'`."""

import fcntl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

from specfleet.fleet.interrupts import deferred

Function = TypeVar("Function", bound=Callable[..., Any])

COMPILING = "compiling the simulator's fast loop, some seconds, once on this machine\n"

# The loop allocates nothing. Without reference counts it is twice as fast.
UNCOUNTED = {"_nrt": False, "error_model": "numpy"}


def compiled(function: Function, **options: Any) -> Function:
    """Return a function that numba compiles for each loop that calls it. The function must not allocate arrays."""
    njit: Any = numba.njit  # its type stubs lack "_nrt"
    return cast("Function", njit(**options, **UNCOUNTED)(function))


def compiled_inline(function: Function) -> Function:
    """Return a function that numba compiles into each of its callers: for calls with many arrays, which are slow."""
    return compiled(function, inline="always")


def compiled_loop(function: Function) -> Function:
    """Return a loop that numba compiles at its first call, and caches. Its first argument is `CODE`.

    Numba caches it in the folder of the source file, in a folder of the user, or in NUMBA_CACHE_DIR. If none is
    writable, each process compiles it.
    """
    try:
        return compiled(function, cache=True)
    except RuntimeError:  # no writable folder
        return compiled(function)


def code_of(folder: Path) -> Any:
    """Return an array whose type has the digest of the source files of a folder: the first argument of its loops.

    Numba's cache looks at the file of a loop and at the types of its arguments, not at the files of the functions that
    the loop calls. With this argument it sees their changes, too. Therefore only loops are cached.
    """
    digest = sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()
    return np.zeros(1, dtype=[(f"code_{digest}", np.int8)])


CODE = code_of(Path(__file__).parent)
CODES: dict[Any, Any] = {}  # of compiled functions


def is_cached(function: Function, signature: tuple[Any, ...]) -> bool:
    """Whether a function is on disk, compiled for these types, as the index of numba's cache says."""
    file = getattr(getattr(function, "_cache", None), "_cache_file", None)
    return file is not None and any(types == signature for types, *_ in file._load_index())


@cache
def announce() -> None:
    """Say once that functions are compiled."""
    sys.stderr.write(COMPILING)


@contextmanager
def in_turn(folder: str | None) -> Iterator[None]:
    """Exclude all other processes that fill this folder; a process that ends, even killed, makes room for the next."""
    with ExitStack() as stack:
        with suppress(OSError):  # where nothing can be written, each process compiles
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
                fcntl.flock(stack.enter_context((Path(folder) / "compiling.lock").open("w")), fcntl.LOCK_EX)
        yield


def ready(function: Function, *arguments: object) -> Function:
    """Compile a function for these arguments, or load it from disk, and return its code for their types.

    All calls have the same argument types; checking them takes as long as 100 rounds. Signals are deferred, because an
    exception in a callback of the compiler is lost.
    """
    made: Any = function
    kinds = made, *map(type, arguments)
    if kinds not in CODES:
        signature = tuple(map(made.typeof_pyval, arguments))
        if signature not in made.overloads and not is_cached(function, signature):
            announce()
        with in_turn(made.stats.cache_path), deferred():
            made.compile(signature)
        CODES[kinds] = made.overloads[signature].entry_point
    return cast("Function", CODES[kinds])
