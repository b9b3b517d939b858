"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="File (TOML), or name of a shipped scenario.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
RunFile = Annotated[Path | None, typer.Option("-o", "--out", metavar="RUN", help="Write the records here (Parquet).")]


def settings(changes: list[str] | None) -> dict[str, Any]:
    """Read what `--set` says, as values by dotted key; InputError where a text sets nothing."""
    from fleet.scenario.changes import pairs_of

    return dict(pairs_of(changes or ()))
