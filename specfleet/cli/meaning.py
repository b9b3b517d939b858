"""explain, profiles, scenarios, init: what things mean, what ships, and a scenario to begin with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from experiments.console.printing import remark
from fleet.errors import InputError
from fleet.files import write_file
from fleet.inputs.text import shortened
from specfleet.cli.options import file_option


def explain(
    word: Annotated[
        str,
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

    print("\n\n".join(in_lines(entry) for entry in entries_of(word)))


def profiles() -> None:
    """List the profiles that ship, and what their numbers rest on."""
    from specfleet.meaning.shipped import profiles

    print(in_columns(profiles()))


def scenarios() -> None:
    """List the scenarios that ship, with a line of what each is."""
    from specfleet.meaning.shipped import scenarios

    print(in_columns(scenarios()))


def schema(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="scenario, profile, run (as --json prints it), comparison or plan.")
    ],
    out: Annotated[Path | None, file_option("-o", "--out", metavar="FILE", help="File to write (JSON).")] = None,
) -> None:
    """Print the JSON Schema of a kind of file or output.

    With `#:schema ./scenario.schema.json` as first line of a scenario, editors complete its keys.
    """
    from specfleet.meaning.schema import KINDS, schema_of

    if kind not in KINDS:
        raise InputError(f"schema {shortened(kind, quoted=False)}: unknown; allowed: {', '.join(KINDS)}")
    text = json.dumps(schema_of(kind), indent=2)
    if out is None:
        print(text)
    else:
        write_file(out, f"{text}\n")
        remark(f"schema: {out}")


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Set rows of text as lines, their cells below each other."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def init(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A scenario that `specfleet scenarios` lists.")],
    out: Annotated[
        Path | None, file_option("-o", "--out", metavar="FILE", help="File to write.", show_default="KIND.toml")
    ] = None,
) -> None:
    """Write a scenario with every key explained in comments.

    An existing file is never overwritten.
    """
    from specfleet.meaning.render import write_template

    path = out or Path(f"{kind}.toml")
    write_template(kind, path)
    remark(f"scenario: {path}")
