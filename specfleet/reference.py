"""`python -m specfleet.reference` writes the reference pages; `--check` says whether they are up to date."""

import argparse
from pathlib import Path

import typer.main
from typer.cli import get_docs_for_click

from experiments.console.exits import STATUSES, run
from experiments.console.printing import remark
from fleet.files import check_folder, write_file
from specfleet.cli.entry import app
from specfleet.meaning.render import all_pages, page, table_of


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    group = typer.main.get_command(app)
    docs = get_docs_for_click(obj=group, ctx=typer.Context(group), name="specfleet", title="Command line")
    statuses = table_of(("status", "meaning"), [(str(int(status)), what) for status, what in STATUSES.items()])
    commands = page(docs, "## Exit statuses", "An error is one line on standard error.", statuses)
    return all_pages() | {"cli.md": commands}


def outdated(folder: Path) -> list[str]:
    """Return the names of the pages in a folder that are not what the code says; pages too many among them."""
    made, stored = pages(), {path.name: path.read_text() for path in folder.glob("*.md")}
    return sorted(name for name in made.keys() | stored.keys() if made.get(name) != stored.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or check them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m specfleet.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a page is not up to date")
    parser.add_argument("--out", type=Path, default=Path("docs/reference"), metavar="DIR", help="folder of the pages")
    options = parser.parse_args(arguments)
    if options.check:
        stale = outdated(options.out)
        if stale:
            remark(f"{options.out}: not up to date: {', '.join(stale)}; run python -m specfleet.reference")
        return 1 if stale else 0
    check_folder(options.out)
    for name, text in pages().items():
        write_file(options.out / name, text)
    return 0


if __name__ == "__main__":
    run(main)
