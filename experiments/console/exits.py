"""How our programs end: the exit statuses, what Ctrl-C and other signals do, and errors as one line."""

import errno
import gc
import importlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from specfleet.experiments.memory import keep_freed_memory
from specfleet.fleet.errors import InputError, NodeDiedError, OutputError
from specfleet.fleet.interrupts import ENDING, Interrupted
from specfleet.fleet.shown import printable

BROKEN_PIPE = 128 + signal.SIGPIPE
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
AGAIN_S = 0.05
PARTS = dict.fromkeys(("torch", "transformers", "zmq", "tokenizers", "safetensors"), "engine") | {
    "distributed": "cluster"
}


def run_main(module: str) -> NoReturn:
    """Import a module and run its `main`; signals and errors during the import end the process in the same way."""
    run(lambda: importlib.import_module(module).main())


def run(program: Callable[[], int | str | None], name: str = "specfleet") -> NoReturn:
    """Run a program and end its process: with the status that it returns, or its error as a line that `name` begins."""
    keep_freed_memory()
    nowhere = Path(os.devnull)
    sys.stdout, sys.stderr = (stream or nowhere.open("w") for stream in (sys.stdout, sys.stderr))  # None if closed
    status: int | str | None
    try:
        status, line = _outcome(program)
    except OSError as error:
        if error.errno in FULL:
            status, line = 1, f"{error.filename or 'standard output'}: cannot be written ({error.strerror})"
        elif isinstance(error, BrokenPipeError) and _is_broken(sys.__stdout__):
            status, line = BROKEN_PIPE, ""
        else:
            raise
        _give_up_stdout()
    try:
        sys.stdout.flush()
    except OSError:  # the message above is enough
        _give_up_stdout()
    if line:
        with suppress(OSError):
            print(f"{name}: {printable(' '.join(line.split()))}", file=sys.stderr)
    gc.freeze()  # the end would look through all that torch has brought, which takes a second, for nothing
    sys.exit(status)


def _outcome(program: Callable[[], int | str | None]) -> tuple[int | str | None, str]:
    """Run the program; return its status, and the line that says what ended it."""
    try:
        with interruptible():
            status = program()
            sys.stdout.flush()
    except Interrupted as stop:
        return stop.status, stop.line()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # libraries have statuses of their own for it
            raise end.__context__ from None
        raise
    except (OutputError, NodeDiedError) as error:
        return 1, str(error)
    except InputError as error:
        return 2, str(error)
    except ModuleNotFoundError as error:
        if error.name not in PARTS:
            raise
        return 2, f"{error.name} is not installed; pip install 'specfleet[{PARTS[error.name]}]'"
    return status, ""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals that end a process raise Interrupted in the main thread, once.

    Later signals are ignored, so that they do not interrupt the clean-up. A signal that was ignored before, as
    nohup does it, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    ending = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        if _is_importing(frame):  # an import that is torn can crash a native library: once more when it is through
            again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        ending = True
        for other in ENDING:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            if not ending and handler is not None:
                signal.signal(number, handler)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


@contextmanager
def keeping(*places: Path | None) -> Iterator[None]:
    """If the work inside is interrupted, add to the error which of these files or folders it has written."""
    before = {place: _files(place) for place in places if place is not None}
    try:
        yield
    except Interrupted as stop:
        stop.kept = "; ".join(filter(None, (stop.kept, *(_kept(place, earlier) for place, earlier in before.items()))))
        raise


@contextmanager
def printing_anyway(show: Callable[[Any], None]) -> Iterator[None]:
    """Where a file of the work inside cannot be written at its end, show what was computed, then raise the error."""
    try:
        yield
    except OutputError as error:
        if error.result is not None:
            show(error.result)
        raise


def _kept(place: Path, before: set[tuple[str, int, int]]) -> str:
    written = _files(place) - before
    if not written:
        return f"nothing was written to {place}"
    return f"kept: {len(written)} files in {place}" if place.is_dir() else f"kept: {place}"


def _files(place: Path) -> set[tuple[str, int, int]]:
    """Return each file at or below a place, with its size and time of change."""
    files = place.rglob("*") if place.is_dir() else [place]
    return {(str(file), file.stat().st_ino, file.stat().st_mtime_ns) for file in files if file.is_file()}


def _is_broken(stream: object) -> bool:
    """Whether the stream's reader has closed it."""
    try:
        poll = select.poll()
        poll.register(stream, select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _give_up_stdout() -> None:
    """Discard output that is not printed yet; Python would try it again at its end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
