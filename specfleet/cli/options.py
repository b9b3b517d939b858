"""Arguments and options that several commands share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="File (TOML), or name of a shipped scenario.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
RunFile = Annotated[Path | None, typer.Option("-o", "--out", metavar="RUN", help="Write the records here (Parquet).")]
Precision = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SHARE",
        help="Go on until the 95 % interval of the throughput is this narrow: 2% either way. METRIC=5% names another; "
        "may be repeated.",
    ),
]


def precision_of(texts: list[str] | None) -> dict[str, float]:
    """Read `--precision`, as shares by metric; InputError where a text is none."""
    from experiments.precision import parse_precision

    return parse_precision(texts or ())


def say_unmet(lines: Iterable[str]) -> None:
    """Say what is not as precise as was asked; exit status 1 if anything is."""
    from experiments.printing import remark

    told = list(lines)
    for line in told:
        remark(f"specfleet: precision not reached: {line}")
    if told:
        raise typer.Exit(1)


def settings(changes: list[str] | None) -> dict[str, Any]:
    """Read what `--set` says, as values by dotted key; InputError where a text sets nothing."""
    from fleet.scenario.changes import pairs_of

    return dict(pairs_of(changes or ()))
