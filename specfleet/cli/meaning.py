"""explain, profiles, scenarios, init: what things mean, what ships, and a scenario to begin with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from specfleet.cli.options import file_option
from specfleet.experiments.console.printing import remark


def explain(
    word: Annotated[
        list[str],
        typer.Argument(
            metavar="WORD", help="A key (its full name or the last part), metric, symbol, column, policy or model."
        ),
    ],
) -> None:
    """Say what a key, metric, symbol, policy or column means.

    Profile fields and acceptance models, too; for an unknown word the nearest ones.
    """
    from specfleet.meaning.entries import explain as entries_of
    from specfleet.meaning.render import in_lines

    print("\n\n".join(in_lines(entry) for entry in entries_of(" ".join(word))))


def profiles() -> None:
    """List the profiles that ship, and what their numbers rest on."""
    from specfleet.meaning.shipped import profiles

    print(in_columns(profiles()))


def scenarios() -> None:
    """List the scenarios that ship, with a line of what each is."""
    from specfleet.meaning.shipped import scenarios

    print(in_columns(scenarios()))


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Set rows of text as lines, their cells below each other."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def init(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="A scenario (`specfleet scenarios`), or a device that ships."),
    ],
    out: Annotated[
        Path | None, file_option("-o", "--out", metavar="FILE", help="File to write.", show_default="KIND.toml")
    ] = None,
) -> None:
    """Write a scenario with every key explained in comments, or a shipped device's file, to change.

    An existing file is never overwritten.
    """
    from specfleet.meaning.render import write_template

    path = out or Path(f"{kind}.toml")
    write_template(kind, path)
    remark(f"written: {path}")
