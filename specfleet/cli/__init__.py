"""The command line, one file a group of commands; `entry.py` gathers them. `python -m specfleet` runs it too.

Commands parse, call what `import specfleet` offers, and print. They import what they need when they run, so that
`specfleet --help` does not wait for libraries.
"""

from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the command `specfleet`: signals and errors end as they should from the first import on."""
    from specfleet.experiments.console.exits import run_main

    run_main("specfleet.cli.entry")
