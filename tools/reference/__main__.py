"""Writes the reference pages, and what `explain` says."""

from pathlib import Path

import typer.main
from typer.cli import get_docs_for_click

from specfleet.cli.entry import app
from specfleet.experiments.console.exits import STATUSES, run
from specfleet.fleet.files import write_file
from specfleet.meaning.entries import FILE
from tools.reference.entries import entries_json
from tools.reference.pages import all_pages, page, table_of


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
