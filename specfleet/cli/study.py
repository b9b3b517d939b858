"""sweep, compare, reproduce, figure, report, explore: several runs, papers, pictures, pages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfleet.cli import options
from specfleet.experiments.console import printing
from specfleet.experiments.console.exits import keeping, printing_anyway
from specfleet.fleet.errors import InputError
from specfleet.fleet.interrupts import Interrupted
from specfleet.fleet.scenario.names import World
from specfleet.fleet.shown import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specfleet.experiments.reproduce.rows import PaperRow, Reproduction
    from specfleet.experiments.sweep.cell import CellResult
    from specfleet.results import Sweep


def sweep(
    scenario: options.ScenarioFile,
    out: Annotated[Path, options.folder_option("-o", "--out", help="Folder of the results.")],
    vary: Annotated[list[str], typer.Option(help="KEY=FIRST:LAST[:STEP] or KEY=A,B,C; may be repeated.")],
    world: Annotated[World, typer.Option(help="sim or engine.")] = "sim",
    seeds: Annotated[int, typer.Option(min=1, help="Replications a cell.")] = 3,
    jobs: options.Jobs = options.PROCESSORS,
    changes: options.Changes = None,
    seed: options.Seed = None,
    path: options.PathOption = "auto",
    power: Annotated[
        bool, typer.Option("--power", help="engine: sample the devices' clock, power and load, for figure devices.")
    ] = False,
    cluster: options.Cluster = "",
    shard: options.Shard = "",
    as_json: options.AsJson = False,
) -> None:
    """Vary keys of a scenario; a rerun computes what is missing."""
    from specfleet import sweep
    from specfleet.experiments.jobs import read_shard
    from specfleet.experiments.sweep.sweep import cells_of, vary_of

    axes = vary_of(vary)
    cells, finished = len(list(cells_of(axes))[read_shard(shard, out)]), 0
    try:
        with printing_anyway(lambda swept: print_sweep(swept, out)), printing.progress("sweep", cells) as advance:

            def done(result: "CellResult") -> None:
                nonlocal finished
                finished += 1
                advance("" if result.found else printing.case_text(result.cell))

            swept = sweep(
                scenario, axes, options.settings(changes, seed), out=out, world=world, seeds=seeds, jobs=jobs,
                done=done, path=path, power=power, cluster=cluster, shard=shard,
            )  # fmt: skip
    except Interrupted as stop:
        stop.kept = f"kept: {finished} of {cells} cells in {out}; the same command goes on from there"
        raise
    if as_json:
        printing.print_json(swept.to_dict())
    else:
        print_sweep(swept, out)
    if swept.errors:
        printing.remark(f"specfleet: {len(swept.errors)} of {len(swept.cells)} cells failed")
        raise typer.Exit(1)


def print_sweep(swept: "Sweep", out: Path) -> None:
    """Print a line for each cell, and what they say together."""
    from specfleet.fleet.times.labels import warning_of

    columns = {"throughput": "throughput, tokens/s", "rounds_per_s": "rounds/s"}
    if any("utility_gap" in result.metrics for result in swept.cells):
        columns |= {"utility": "utility", "utility_gap": "its gap to the optimum"}
    rows = []
    for result in swept.cells:
        found = map(result.metrics.get, columns)
        values = (f"{number(of.value)} ({printing.interval(of)})" if of else "-" for of in found)
        rows.append((printing.case_text(result.cell), *values, result.error))
    warnings = {warning_of(result.basis) for result in swept.cells} - {""}
    printing.print_table("; ".join([f"sweep in {out}", *warnings]), ("cell", *columns.values(), "error"), rows)
    for result in swept.cells:
        if result.overload:
            printing.say(f"{printing.case_text(result.cell)}: {result.overload}")
    printing.say("\n".join(swept.findings()))
    printing.print_notes(swept.notes)


def compare(
    first: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A simulated run (Parquet); or the measured one alone, to be predicted."),
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Records of the measured run, or a client's file (JSON).")
    ] = None,
    rerun: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="Another run of the measured scenario; may be repeated.")
    ] = None,
    changes: options.Changes = None,
    seed: options.Seed = None,
    tolerance: Annotated[float, typer.Option(help="Largest relative error of throughput and rounds/s.")] = 0.05,
    as_json: options.AsJson = False,
) -> None:
    """Hold a simulated run against a measured one, and say where the error comes from.

    Says first what the two did not share. With the measured run alone, it is predicted from its own scenario, which
    --set may change. Ends with exit status 1 beyond the tolerance.
    """
    from specfleet import compare, three_errors
    from specfleet.experiments.compare.compare import worst

    if not tolerance >= 0:  # NaN is not, either
        raise InputError(f"--tolerance {tolerance}: needs a share, 0 or more")
    if second is not None and options.settings(changes, seed):
        raise InputError("--set, --seed change the prediction of a run that is named alone; leave one of them out")

    with printing.busy("comparing"):
        if second is None:
            comparison = three_errors(first, options.settings(changes, seed), reruns=rerun or [])
        else:
            comparison = compare(first, second, reruns=rerun or [])
    if as_json:
        printing.print_json(comparison)
    else:
        printing.print_comparison("comparison", comparison)
    if beyond := [name for name in ("throughput", "rounds_per_s") if worst(comparison, name) > tolerance]:
        printing.remark(f"specfleet: {' and '.join(beyond)} off by more than {tolerance:.1%}")
        raise typer.Exit(1)


def reproduce(
    name: Annotated[str, typer.Argument(help="Name of a table or figure of a paper; empty lists them.")] = "",
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="A run file of the authors (amusd-a100).")] = None,
    out: Annotated[Path | None, options.folder_option("-o", "--out", help="all: keep each in this folder.")] = None,
    cluster: options.Cluster = "",
    shard: options.Shard = "",
    as_json: options.AsJson = False,
) -> None:
    """Reproduce a paper's table or figure, row by row; `all` runs every one, and sums up by paper.

    Rows hold the paper's number, ours and the error, and say what kind of number it is.
    """
    from specfleet import reproduce
    from specfleet.experiments.jobs import read_shard
    from specfleet.experiments.reproduce import REPRODUCTIONS
    from specfleet.experiments.reproduce.every import EVERY, names

    if not name:
        printing.say("\n".join((*REPRODUCTIONS, EVERY)))
        return
    if name == EVERY:
        chosen = list(names(trace))[read_shard(shard, out)]
        with printing.progress("reproduce", len(chosen)) as advance:
            reproduction = reproduce(name, trace=trace, report=advance, out=out, cluster=cluster, shard=shard)
    else:
        with printing.busy(f"reproducing {name}"):
            reproduction = reproduce(name, trace=trace, out=out, cluster=cluster, shard=shard)
    if as_json:
        printing.print_json(reproduction)
    else:
        print_paper_rows(name, reproduction.rows)
        print_judgement(reproduction)


def print_paper_rows(name: str, rows: "Iterable[PaperRow]") -> None:
    """Print rows: the paper's number, ours and the error, and a null model's number."""
    columns = ("quantity", "case", "kind", "paper", "ours", "error", "null")
    cells = [
        (row.quantity, printing.case_text(row.case), row.kind, row.paper, row.ours, error_text(row), row.null)
        for row in rows
    ]
    printing.print_values(name, columns, cells)


def print_judgement(reproduction: "Reproduction") -> None:
    """Print what a reproduction assumes, how far off it is, and which orders it reverses."""
    from specfleet.experiments.reproduce.rows import kinds_of, nulls_of, reversed_orders

    for assumption in reproduction.assumptions:
        printing.say(f"assumed: {assumption}")
    for note in dict.fromkeys(row.note for row in reproduction.rows if row.note):
        printing.say(f"unsettled: {note}")
    for rule, null in nulls_of(reproduction.rows).items():
        explained = ", explains them" if null.error <= null.ours else ""
        printing.say(
            f"null model of {rule}: mean error {null.error:.1%}, ours {null.ours:.1%} (rows: {null.rows}{explained})"
        )
    printing.say("kinds: " + ", ".join(f"{count} {kind}" for kind, count in kinds_of(reproduction.rows).items()))
    for part, score in reproduction.parts.items():
        printing.say(f"{part}: {score.line()}")
    printing.say(reproduction.score.line())
    orders, reversed_ones = reversed_orders(reproduction.rows)
    if orders:
        printing.say(f"orders of two methods in a case: {orders - len(reversed_ones)} of {orders} are the paper's")
    for order in reversed_ones:
        printing.say(f"reversed: {order}")


def error_text(row: "PaperRow") -> str | None:
    """Say how far off a row is, and of what where that is not the row's own number."""
    if row.error is None:
        return None
    return f"{row.error:+.1%}" if row.part_of is None else f"{row.error:+.1%} of {number(row.part_of)}"


def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="sweep, devices, timeline or plan.")],
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="A sweep's folder, a run (Parquet), a plan (JSON).")
    ],
    out: Annotated[
        Path | None,
        options.file_option("-o", "--out", metavar="FILE", help="Picture; its ending says the format, such as .png."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--y", metavar="METRIC", help="sweep: a metric, throughput by default, along the first key.")
    ] = "",
    panels: Annotated[
        bool, typer.Option("--panels", help="sweep: a panel for each value of the second key, not a line.")
    ] = False,
    width: Annotated[float | None, typer.Option(metavar="INCHES", help="Width: 3.3 for a paper's column.")] = None,
    no_caption: Annotated[bool, typer.Option("--no-caption", help="Leave the caption to the paper.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw a figure from results, or print what it draws: rows in the units that `labels` has."""
    from specfleet.experiments.draw import draw

    if out is None and not as_json:
        raise InputError("figure: name a picture with -o, or print what it would draw with --json")
    with keeping(out):
        drawn = draw(name, results, out, metric, panels=panels, width_inches=width, caption=not no_caption)
    if as_json:
        rows = drawn.rows.to_dict("records")
        printing.print_json({"figure": name, "caption": drawn.caption, "labels": drawn.labels, "rows": rows})
    else:
        printing.remark(f"figure: {out}")


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="A run (Parquet), or the folder of a sweep or a plan.")
    ],
    out: Annotated[Path, options.file_option("-o", "--out", metavar="FILE", help="The page (HTML).")],
) -> None:
    """Write one page of results to send around: answer, figures, tables to sort, where every number is from.

    It holds all that it shows, and no request leaves it.
    """
    from specfleet import report

    with keeping(out):
        page = report(results, out)
    printing.remark(f"report: {out}, {len(page.encode()) / 1000:.0f} kB")


def explore(
    out: Annotated[Path, options.file_option("-o", "--out", metavar="FILE", help="The page (HTML).")],
    scenario: options.ScenarioFile = Path("star"),
    changes: options.Changes = None,
) -> None:
    """Write one page with sliders for the equations of a scenario, or of a star with a profile."""
    from specfleet import explore
    from specfleet.experiments.report.explore import in_star

    with keeping(out):
        page = explore(scenario, out, options.settings(changes))
    printing.print_notes(in_star(str(scenario)))
    printing.remark(f"page: {out}, {len(page.encode()) / 1000:.0f} kB")
