"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (TOML).")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
RunFile = Annotated[Path | None, typer.Option("-o", "--out", metavar="RUN", help="Write the records here (Parquet).")]
