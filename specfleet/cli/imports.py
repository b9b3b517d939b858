"""import, export: records of other engines become scenarios; a scenario's acceptance is forced on other engines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.console.exits import keeping
from experiments.console.printing import print_json, print_table, remark
from fleet.shown import number
from specfleet.cli.options import AsJson, Changes, ScenarioFile, file_option, settings

if TYPE_CHECKING:
    from calibrate.readers.importing import Imported


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="vllm, vllm-metrics, vllm-log, sglang, aiperf, specdecode-bench or amusd.",
        ),
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="What the engine printed or recorded.")],
    out: Annotated[Path, file_option("-o", "--out", metavar="SCENARIO", help="Scenario to write (TOML).")],
    draft_ms: Annotated[float | None, typer.Option(help="Time of a draft token, in milliseconds.")] = None,
    verify_ms: Annotated[float | None, typer.Option(help="Time of a verification, in milliseconds.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="PROFILE", help="A profile with the step times: shipped, or a file.")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="Depth of the scenario's drafts.", show_default="as recorded; 5 of specdecode-bench"),
    ] = None,
    method: Annotated[str, typer.Option(help="Of specdecode-bench: eagle or ngram.", show_default="eagle")] = "",
    dataset: Annotated[str, typer.Option(help="Of specdecode-bench in Parquet: one dataset.", show_default="all")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a scenario of another engine's records.

    Lengths and acceptance by place go into files beside it. With step times, stated or of a profile, it simulates at
    once. A file that contradicts its format's identities is refused in one line.
    """
    import msgspec

    from specfleet import import_record

    with keeping(out):
        imported = import_record(
            kind, files, out, draft_ms=draft_ms, verify_ms=verify_ms, profile=profile, depth=depth, method=method,
            dataset=dataset,
        )  # fmt: skip
    if as_json:
        named = {"scenario": str(out), "files": [str(path) for path in imported.files]}
        print_json(msgspec.structs.asdict(imported) | named)
    else:
        print_imported(imported)


def print_imported(imported: "Imported") -> None:
    """Print what was counted beside what the file says."""
    rows = [(name, *map(_cell, values)) for name, *values in imported.rows()]
    print_table(imported.format, ("quantity", "counted", "the file says"), rows)
    for note in imported.notes:
        remark(f"note: {note}")
    for path in reversed(imported.files):
        remark(f"written: {path}")


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else number(value)


def export(scenario: ScenarioFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Print the settings that force a scenario's acceptance on other engines.

    One line each for vLLM, SGLang, TensorRT-LLM and ATOM, for benchmarks at the same mean acceptance length.
    """
    from specfleet import export

    lines = export(scenario, settings(changes))
    if as_json:
        print_json(lines)
    else:
        print("\n".join(f"{engine}: {line}" for engine, line in lines.items()))
