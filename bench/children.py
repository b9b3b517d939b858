"""Programs that run beside a study and end with it."""

import subprocess
from collections.abc import Sequence
from typing import Any

from fleet.interrupts import deferred


def run_child(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; where this process is ended before, so is that one, which then ends its own."""
    process: subprocess.Popen[str] | None = None
    try:
        with deferred():  # half started, it would go on by itself
            process = subprocess.Popen(command, text=True, **options)  # noqa: S603  (our own programs)
        out, err = process.communicate()
    except BaseException:
        if process is not None:
            with process:
                process.terminate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
