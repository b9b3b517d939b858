"""Our programs as processes in a session of their own, so that a test finds everything that they leave behind."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_S = 120  # timeout of a failing test only
SIGNALS = {"Ctrl-C": (signal.SIGINT, "interrupted"), "SIGTERM": (signal.SIGTERM, "ended by SIGTERM")}


def start(
    *arguments: str | Path,
    largest_file_bytes: int | None = None,
    before: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **more: Any,
) -> subprocess.Popen[str]:
    """Start `python ARGUMENTS` as a terminal would, with default signals.

    `before`: words of a command that starts it elsewhere. `env`: variables beside those of this process.
    """

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if largest_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))

    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT} | more
    command = [*before, sys.executable, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | dict(env or {})
    return subprocess.Popen(
        command, text=True, start_new_session=True, preexec_fn=prepare, env=environment, **more  # noqa: PLW1509
    )  # fmt: skip


def specfleet(*arguments: str | Path, **more: Any) -> subprocess.Popen[str]:
    """Start the command `specfleet`."""
    return start("-m", "specfleet", *arguments, **more)


def ended(process: subprocess.Popen[str], limit_s: float = LIMIT_S) -> tuple[int, str, str]:
    """Wait for the end of a process; return its status, standard output and error."""
    try:
        out, err = process.communicate(timeout=limit_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def state_of(stat: Path) -> tuple[str, int]:
    """Read a process's state (R running, S asleep, Z ended) and its session from its file below /proc."""
    state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
    return state, int(session)


def is_asleep(process: subprocess.Popen[str]) -> bool:
    """Whether the process's main thread is asleep."""
    return state_of(Path(f"/proc/{process.pid}/stat"))[0] == "S"


def alive(session: int) -> list[int]:
    """List the processes of a session that have not ended."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, of_session = state_of(stat)
        except OSError:  # it has just ended
            continue
        if of_session == session and state != "Z":
            pids.append(int(stat.parent.name))
    return pids


def eventually(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> bool:
    """Wait for a condition; False if it never holds, or if the process ended before."""
    limit_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit_s or (process is not None and process.poll() is not None):
            return condition()
        time.sleep(0.02)
    return True


def tell(process: subprocess.Popen[str], how: str) -> None:
    """Send the signal: Ctrl-C goes to all processes of a terminal, `kill` to the one that it names."""
    if how == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(SIGNALS[how][0])


def assert_ended_by(process: subprocess.Popen[str], how: str, *kept: str) -> str:
    """Check the status, the one line, no standard output, no remaining process; return the rest of standard error."""
    status, out, err = ended(process)
    number, line = SIGNALS[how]
    assert (status, out) == (128 + number, ""), err
    *others, last = err.strip().splitlines()
    assert last.partition(": ")[2] in [f"{line}; {place}" for place in kept], err
    assert "Traceback" not in err
    assert eventually(lambda: not alive(process.pid)), f"left behind: {alive(process.pid)}"
    return "\n".join(others)
