"""One mutant against the law: it is refused in one line with exit status 2, or it is run rightly. Nothing else."""

import contextlib
import io
import os
import re
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from specfleet import cli
from tests.inputs.results import problem_of, written_by

CPU_S = 60  # of the processor for one mutant; a good file takes less than one
ROOM_BYTES = 4 << 30  # of address space beyond what this process has

Verdict = Literal["refused", "right", "wrong"]


REMARKS = re.compile(r"^note: .*\n", re.MULTILINE)  # of `run` about its host


class Outcome(NamedTuple):
    """Result of a mutant; `says`: the line that refused it, or the fault."""

    verdict: Verdict
    says: str


class TooSlow(BaseException):
    """Raised if the code under test runs too long."""


def judged(arguments: Sequence[str], folder: Path, statuses: Sequence[int] = (0,)) -> Outcome:
    """Run the command line in this process, in a folder, and judge its end; `statuses`: those of a right run."""
    out, err = io.StringIO(), io.StringIO()
    written = written_by(arguments, folder)
    if written is not None and written.is_file():  # of another run
        written.unlink()
    with _within(folder), _limited(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning is a line on standard error that names no file
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = _run(arguments)
        except TooSlow:
            return Outcome("wrong", f"more than {CPU_S} s")
        except BaseException:  # noqa: BLE001  (any traceback that a user would get)
            return Outcome("wrong", "traceback: " + traceback.format_exc()[-1500:])
        if status == 2:
            return _refused(out.getvalue(), err.getvalue())
        if status not in statuses:
            return Outcome("wrong", f"status {status}: {err.getvalue()[-500:]}")
        if "Traceback" in err.getvalue():
            return Outcome("wrong", err.getvalue()[-1500:])
        problem = problem_of(arguments, out.getvalue(), folder)
    return Outcome("wrong", problem) if problem else Outcome("right", "")


def _run(arguments: Sequence[str]) -> int:
    given, sys.argv = sys.argv, ["specfleet", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = given


def _refused(printed: str, errors: str) -> Outcome:
    errors = REMARKS.sub("", errors)
    line = errors.strip("\n")
    if printed or "\n" in line or not line.startswith("specfleet: ") or len(line) > 2000 or not line.isprintable():
        return Outcome("wrong", f"status 2, but not one line: {errors[-1500:]!r}; printed {printed[-200:]!r}")
    return Outcome("refused", line)


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Bound time and memory; time is the processor's, so that a busy host changes nothing."""

    def stop(_number: int, _frame: object) -> None:
        raise TooSlow

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
