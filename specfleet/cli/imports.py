"""import, export: records of other engines become scenarios; a scenario's acceptance is forced on other engines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfleet.cli.options import AsJson, Changes, ScenarioFile, file_option, settings
from specfleet.experiments.console.exits import keeping
from specfleet.experiments.console.printing import busy, print_json, print_notes, print_values, remark, say
from specfleet.fleet.errors import InputError

if TYPE_CHECKING:
    from specfleet.calibration.readers.importing import Imported
    from specfleet.calibration.readers.load import Load
    from specfleet.experiments.compare.loads import LoadComparison


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="vllm, vllm-metrics, vllm-log, vllm-bench, llama-cpp, llama-cpp-log, llama-cpp-metrics, sglang, "
            "sglang-log, sglang-bench, aiperf, guidellm or inference-perf.",
        ),
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="What the engine printed or recorded.")],
    out: Annotated[Path, file_option("-o", "--out", metavar="SCENARIO", help="Scenario to write (TOML).")],
    draft_ms: Annotated[float | None, typer.Option(help="Time of a draft token, in milliseconds.")] = None,
    verify_ms: Annotated[float | None, typer.Option(help="Time of a verification, in milliseconds.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="PROFILE", help="A profile with the step times: shipped, or a file.")
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="PLACE", help="Estimate step times of a target: MODEL@DEVICE.", show_default="none")
    ] = "",
    draft: Annotated[
        str,
        typer.Option(metavar="MODEL", help="With --target: its drafter, lookup, suffix or mtp.", show_default="none"),
    ] = "",
    fit: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Scale estimated times to the measured round, as of the same device.")
    ] = True,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Depth of the scenario's drafts.", show_default="as recorded")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Of vllm-metrics: time between two scrapes.", show_default="by samples, else by files"),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of clients: requests that they kept in flight, 0 if these arrived.",
            show_default="by their settings",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a scenario of another engine's records: acceptance, and the load where they have it.

    Lengths go into a file beside it. With step times, stated, of a profile, estimated, or
    inferred from the load, it simulates at once; a load is then compared with its simulation. A file that contradicts
    its format's identities is refused in one line.
    """
    import msgspec

    from specfleet import compare_load, import_record

    with keeping(out):
        imported = import_record(
            kind, files, out, draft_ms=draft_ms, verify_ms=verify_ms, profile=profile, target=target, draft=draft,
            fit=fit, depth=depth, seconds=seconds, in_flight=in_flight,
        )  # fmt: skip
    if not as_json:
        print_imported(imported)
    try:
        with busy("simulate what was read"):
            comparison = compare_load(imported)
    except InputError as error:
        raise InputError(f"{out} is written, and does not simulate: {error}") from error
    if as_json:
        named = {"scenario": str(out), "files": [str(path) for path in imported.files], "comparison": comparison}
        print_json(msgspec.structs.asdict(imported) | named)
    elif comparison is not None:
        print_comparison(comparison)
    elif imported.load is not None and imported.times:
        remark(f"not compared with its simulation, which is long: specfleet simulate {out}")
    if imported.load is not None and imported.times and not as_json:
        remark(next_step(imported, imported.load, out))


def next_step(imported: "Imported", load: "Load", out: Path) -> str:
    """Say which command has other draft lengths and no drafts, or drafts at all."""
    from specfleet.fleet.acceptance.published import published_rows
    from specfleet.fleet.hardware.shipped import shipped_name

    held = max(round(load.running or load.in_flight or 1), 1)
    if not (server := getattr(imported.scenario.profile, "server", None)):
        again = f"import again with --target MODEL@DEVICE{' --draft MODEL' * bool(imported.rounds)}"
        return f"other draft lengths, methods, or none: {again}, then: specfleet plan {out} --in-flight {held}"
    loads = ",".join(map(str, dict.fromkeys((max(held // 4, 1), held, 4 * held))))
    of_target = [row for row in published_rows().values() if row.target == shipped_name(server.target.split("@")[0])]
    known = {row.drafter: ":".join(filter(None, ("published", row.data, row.engine))) for row in reversed(of_target)}
    others = [name for name in ("eagle3", "lookup") if name in known and name not in server.draft]
    add = " ".join(f"--draft {name} --acceptance {name}={known[name]}" for name in others)
    which, at = "which draft length, or none" if imported.rounds else "without drafts", f"--in-flight {loads}"
    if imported.scenario.workload.arrivals is not None:
        at = f"(as they arrive; for other loads --arrivals, or {at})"
    add = add or "--draft MODEL --acceptance MODEL=SHARE"
    return f"{which}: specfleet plan {out} {at}; other methods: add {add}"


def print_imported(imported: "Imported") -> None:
    """Print what was counted beside what the file says, then the load."""
    if rows := imported.rows():
        print_values(imported.format, ("quantity", "counted", "the file says"), rows)
    if imported.load is not None:
        print_load(imported.load)
    print_notes(imported.notes)
    for path in reversed(imported.files):
        remark(f"written: {path}")


def print_load(load: "Load") -> None:
    """Print what the server did, then the time of a round by each way, and how far the ways are apart."""
    from specfleet.calibration.readers.load import LEVELS

    print_values(f"load: {load.over}", ("observed", "mean", *LEVELS), load.rows())
    if load.ways:
        ways = [(way.name, way.label, 1e3 * way.time_s) for way in load.ways]
        print_values("time of a round", ("way", "", "ms"), ways, texts=2)
        say(load.disagreement() or "no second way to the time of a round")


def print_comparison(comparison: "LoadComparison") -> None:
    """Print the simulation beside what was read."""
    rows = [
        (row.quantity, row.kind, row.observed, row.simulated, None if row.error is None else f"{row.error:+.1%}")
        for row in comparison.rows
    ]
    headings = ("quantity", "", "read", "simulated", "error")
    print_values(f"simulated; step times {comparison.times}", headings, rows, texts=2)
    say(comparison.line())


def export(scenario: ScenarioFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Print the settings that force a scenario's acceptance on other engines.

    One line each for vLLM, SGLang, TensorRT-LLM, llama.cpp and ATOM, for benchmarks at the same mean acceptance length.
    """
    from specfleet import export

    lines = export(scenario, settings(changes))
    if as_json:
        print_json(lines)
    else:
        say("\n".join(f"{engine}: {line}" for engine, line in lines.items()))
