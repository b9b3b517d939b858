"""Arguments and options that several commands share; places to write to are tried before a command begins."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from specfleet.fleet.scenario.names import Engine, SimPath

PathOption = Annotated[
    SimPath,
    typer.Option(
        "--path", help="How to simulate: simpy, fast (compiled; for some fleets), or auto. The records are the same."
    ),
]


def settings(changes: list[str] | None, seed: int | None = None) -> dict[str, Any]:
    """Read `--set` and `--seed` as values by dotted key; InputError where a text sets nothing, or a key again."""
    from specfleet.fleet.errors import InputError
    from specfleet.fleet.scenario.changes import pairs_of

    values: dict[str, Any] = {}
    for key, value in pairs_of([*(changes or ()), *([] if seed is None else [("seed", seed)])]):
        if key in values:
            raise InputError(f"--set {key}: stands twice; give it once")
        values[key] = value
    return values


def file_option(*names: str, metavar: str, help: str, **more: Any) -> Any:  # noqa: A002  (as typer calls it)
    """Return an option for a file that the command writes; InputError where none can be written there."""
    return typer.Option(*names, metavar=metavar, help=help, callback=_checked("check_writable"), **more)


def folder_option(*names: str, help: str) -> Any:  # noqa: A002
    """Return an option for a folder that the command fills; InputError where nothing can be written there."""
    return typer.Option(*names, metavar="DIR", help=help, callback=_checked("check_folder"))


def _checked(check: str) -> Callable[[Path | None], Path | None]:
    def checked(place: Path | None) -> Path | None:
        from specfleet.fleet import files

        if place is not None:
            getattr(files, check)(place)
        return place

    return checked


_SCENARIO: Any = typer.Argument(metavar="SCENARIO", help="File (TOML), or name of a shipped scenario.")
ScenarioFile = Annotated[Path, _SCENARIO]
ScenarioOrNone = Annotated[Path | None, _SCENARIO]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")]
Seed = Annotated[int | None, typer.Option("--seed", help="As --set seed=N.", show_default="the scenario's")]
Cluster = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Run them on a Dask cluster: its scheduler's address, tcp://HOST:8786.")
]
Shard = Annotated[
    str, typer.Option(metavar="I/N", help="Run a share, such as 1/8; without it, a rerun merges what --out holds.")
]
PROCESSORS = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option(min=1, help="Simulations at once here.", show_default="the host's processors")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Everything = Annotated[bool, typer.Option("--all", help="Print all metrics, not the five lines that come first.")]
Part = Literal["target"]
By = Annotated[Part | None, typer.Option("--by", help="target: print a row for each target, too.")]
RunFile = Annotated[Path | None, file_option("-o", "--out", metavar="RUN", help="Write the records here (Parquet).")]
EngineName = Annotated[
    Engine | None, typer.Option("--engine", help="Use this engine in place of our own; see docs/outside.md.")
]
Power = Annotated[
    Path | None,
    file_option("--power", metavar="FILE", help="Measure the devices' clock, power, load and memory (Parquet)."),
]
