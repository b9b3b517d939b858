"""Programs that a signal ends as a user would: sending it, and the common end of all of them."""

import os
import signal
import subprocess

from tests.helpers.processes import alive, ended, eventually

SIGNALS = {"Ctrl-C": (signal.SIGINT, "interrupted"), "SIGTERM": (signal.SIGTERM, "ended by SIGTERM")}


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
