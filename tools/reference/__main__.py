"""Writes the reference pages, and what `explain` says."""

import signal
from pathlib import Path

import typer.main
from typer.cli import get_docs_for_click

from specfleet.cli.entry import app
from specfleet.experiments.console.exits import BROKEN_PIPE, run
from specfleet.fleet.files import write_file
from specfleet.meaning.entries import FILE
from tools.reference.entries import entries_json
from tools.reference.pages import all_pages, page, table_of

STATUSES = {
    0: "The command succeeded.",
    1: "It ran, and something of it failed: a cell of a sweep, a comparison beyond its tolerance, a process of a "
    "running fleet that was killed, a file that could not be written (a full disk). What was computed is printed, the "
    "file unchanged.",
    2: "Nothing ran: a wrong option, file, key or value, a place where no file can be written, or an optional part "
    "that is not installed.",
    128 + signal.SIGINT: "It was interrupted with Ctrl-C; the line says what was kept.",
    128 + signal.SIGTERM: "It was ended by SIGTERM; the line says what was kept. 129 where its terminal was closed.",
    BROKEN_PIPE: "The reader of its output closed the pipe, such as `head`; there is no line.",
}
"""Exit statuses and their meanings."""


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    group = typer.main.get_command(app)
    docs = get_docs_for_click(obj=group, ctx=typer.Context(group), name="specfleet", title="Command line")
    statuses = table_of(("status", "meaning"), [(str(int(status)), what) for status, what in STATUSES.items()])
    commands = page(docs, "## Exit statuses", "An error is one line on standard error.", statuses)
    return all_pages() | {"cli.md": commands}


def main() -> int:
    """Write the pages and the entries; return the exit status."""
    for name, text in pages().items():
        write_file(Path("docs/reference") / name, text)
    write_file(Path("specfleet/meaning") / FILE.name, entries_json())
    return 0


if __name__ == "__main__":
    run(main)
