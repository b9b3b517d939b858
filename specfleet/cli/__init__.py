"""The command line, one file a group of commands; `entry.py` gathers them. `python -m specfleet` runs it too.

Commands parse, call what `import specfleet` offers, and print. They import what they need when they run, so that
`specfleet --help` does not wait for libraries.
"""

import os
import platform
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the command `specfleet`: signals and errors end as they should from the first import on."""
    from specfleet.experiments.console.exits import run_main

    if platform.machine() == "x86_64":  # where torch has another library: these threads spin, and no step needs them
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    run_main("specfleet.cli.entry")
