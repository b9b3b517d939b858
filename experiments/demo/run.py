"""The demo: calibrate the demo pair among runs of N = 1, 2, ... on the engine, sweep in simulation, compare, draw.

Parts of the calibration come before, between and after the passes of runs, on other prompts and other fleets, so that a
host that changes speed does so in both. The first part fixes the two verification times of the replayed targets. No
number of a run enters the profile (law 7): the profile is fitted from the calibration alone.
The engine runs every cell once a pass, in another random order each time. The difference between two runs of a cell is
the error that no model can go below.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from specfleet.calibration.run import Bench, bench_of, pass_of
from specfleet.engine.launch.serve import serve
from specfleet.experiments.compare import compare
from specfleet.experiments.console.printing import case_text
from specfleet.experiments.demo.cells import TARGETS, DemoEffort, calibration_scenario, in_pass, planned_cells
from specfleet.experiments.draw import timeline_of
from specfleet.experiments.report.page import html_of
from specfleet.experiments.report.pages import demo_page
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.figure import sweep_figure
from specfleet.experiments.sweep.findings import COUNT, knees
from specfleet.experiments.sweep.sweep import sweep, table
from specfleet.figures.style import Drawn, save
from specfleet.fleet.acceptance.models import BetaGeometric
from specfleet.fleet.errors import OutputError
from specfleet.fleet.files import check_folder, write_file, write_json
from specfleet.fleet.records.delays import late_starts
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, write_run
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.fleet.shown import number, with_ends
from specfleet.fleet.times.describe import describe
from specfleet.fleet.times.profile import HardwareProfile, write_profile

Report = Callable[[str], None]
Rows = Sequence[compare.ComparedQuantity]
PAGE, TABLE, CURVES = "report.html", "comparison.json", "throughput-vs-n"
SIM_SEEDS = 20
JUDGED = ("rounds_per_s", "throughput")
UNSTEADY = 0.05  # difference of two runs of a cell from which the host counts as unsteady
AS_GOOD = 0.03  # a blind error that is small on any host ...
OVER_HOST = 1.25  # ... or this many times the difference of two runs


class DemoResult(msgspec.Struct, frozen=True):
    """The blind predictions against the engine's runs, with their three errors; `lines`: what to print, in order."""

    comparison: compare.Comparison
    lines: list[str]


def run_demo(folder: Path, effort: DemoEffort, report: Report) -> DemoResult:
    """Run the whole demo into `folder`; `report` is called with the name of each stage as it begins."""
    check_folder(folder)
    bench = bench_of(
        calibration_scenario(), folder / "continuations", effort.calibration,
        lambda stage: report(f"calibration: {stage}"), report,
    )  # fmt: skip
    calibrate_part(bench, 0)
    planned = planned_cells(bench.profile(), effort)
    runs: list[list[Run]] = [[] for _ in planned]
    for turn in range(1, effort.passes + 1):
        for place in in_pass(len(planned), turn):
            cell, scenario = planned[place]
            report(f"engine, pass {turn} of {effort.passes}: {case_text(cell)}")
            run = serve(scenario, folder / "continuations").run
            runs[place].append(run)
            write_run(run, folder / "records" / f"{name_of(scenario)}.pass-{turn}.engine.parquet")
        calibrate_part(bench, turn)
    profile = bench.profile()
    write_profile(profile, folder / "profile.json")
    write_scenarios(planned, folder / "records")

    report("simulation of all cells")
    known = [(cell, msgspec.structs.replace(scenario, profile=profile)) for cell, scenario in planned]
    simulated, of_fit = (
        sweep(cells, folder / name, seeds=SIM_SEEDS, workers=os.cpu_count() or 1)
        for name, cells in (("simulated", known), ("simulated-beta-geometric", fitted(known)))
    )
    measured, rows, rows_of_fit = [], [], []
    for result, fit, (cell, scenario), of_cell in zip(simulated, of_fit, known, runs, strict=True):
        report(f"comparison: {case_text(cell)}")
        reruns = compare.simulated_reruns(scenario, of_cell)
        measured.append(measured_cell(result, reruns))
        rows += compare.compare_metrics(cell, result.metrics, reruns)
        rows_of_fit += compare.compare_metrics(cell, fit.metrics, reruns)
    comparison, every = compare.summarise(rows, profile.digest()), [run for of_cell in runs for run in of_cell]
    late = list(map(late_starts, every))
    lines = findings(measured, rows, rows_of_fit, late)
    result = DemoResult(comparison, [f"report: {folder / PAGE}", *lines])
    facts = details(profile, every, [line for run in every for line in replay(run)], late)
    try:
        write_json(with_ends(comparison), folder / TABLE)
        drawings = draw_figures(folder, simulated, measured, runs).values()  # which the page makes narrow
        write_file(folder / PAGE, html_of(demo_page(lines, rows, rows_of_fit, drawings, profile, facts)))
        for name, drawn in draw_figures(folder, simulated, measured, runs).items():
            save(drawn.figure, folder / f"{name}.png", drawn.caption)
    except OutputError as error:
        error.result = result
        raise
    return result


def name_of(scenario: Scenario) -> str:
    """Return the beginning of the names of a cell's files."""
    return f"{scenario.name}-N{scenario.verifiers.count}"


def write_scenarios(cells: Sequence[tuple[dict[str, Any], Scenario]], folder: Path) -> None:
    """Write the scenario of each cell beside its records, with the profile above them, so that it can be simulated."""
    for _, scenario in cells:
        lines = scenario_lines(scenario, "../profile.json", ["Written by `specfleet demo`."])
        write_file(folder / f"{name_of(scenario)}.toml", "\n".join(lines) + "\n")


def fitted(cells: Sequence[tuple[dict[str, Any], Scenario]]) -> list[tuple[dict[str, Any], Scenario]]:
    """Return the cells with acceptance drawn from a fit to the profile's record, not from the record itself."""
    return [(cell, msgspec.structs.replace(scenario, acceptance=BetaGeometric())) for cell, scenario in cells]


def calibrate_part(bench: Bench, number: int) -> None:
    """Measure the part of the calibration that comes after pass `number`; acceptance and links once, at first."""
    bench.measure(pass_of(calibration_scenario(), bench.effort, number))
    if number == 0:
        bench.record_acceptance()
        bench.measure_links()


def measured_cell(simulated: CellResult, reruns: compare.Reruns) -> CellResult:
    """Return a cell as the engine ran it: medians of its runs, between the least and the largest of them."""
    metrics = {}
    for name, metric in reruns.engine[0].items():
        values = [run[name].value for run in reruns.engine if name in run]
        metrics[name] = Metric(float(np.median(values)), min(values), max(values), metric.unit)
    return msgspec.structs.replace(simulated, world="engine", seeds=len(reruns.engine), metrics=metrics)


def draw_figures(
    folder: Path, simulated: Sequence[CellResult], measured: Sequence[CellResult], runs: Sequence[list[Run]]
) -> dict[str, Drawn]:
    """Return the figures by name: replayed targets in both worlds, the table in `folder`, and two timelines."""
    places = [place for place, of_cell in enumerate(runs) if of_cell[0].header.scenario.verifiers.kind == "replayed"]
    as_run = [msgspec.structs.replace(measured[place], analytic={}) for place in places]
    rows = table([simulated[place] for place in places] + as_run)
    rows = rows[rows.quantity.isin(("throughput", "N_full", "N_max", "idle_slowdown", "prefill_share"))]
    write_file(folder / f"{CURVES}.csv", rows.to_csv(index=False))
    few, many = (chosen(places, key=lambda place: measured[place].cell[COUNT]) for chosen in (min, max))
    return {
        CURVES: sweep_figure(rows, panels=True),
        "timeline": timeline_of(runs[few][0], runs[many][0]),
    }


class Errors(NamedTuple):
    """Errors over cells and quantities, as shares: means, and the worst cell's where named so.

    All are of one run: by how much it is off its prediction, and off another run of its cell.
    """

    blind: float
    blind_worst: float
    mechanism: float
    mechanism_worst: float
    host: float


def findings(measured: Sequence[CellResult], rows: Rows, of_fit: Rows, late: Sequence[float]) -> list[str]:
    """Return the lines to print: the knees as measured, throughput in both worlds, errors, a verdict.

    - `rows`, `of_fit`: the same quantities, with recorded and with fitted acceptance.
    - `late`: of each run, the share of its steps that started late.
    """
    errors, fit = errors_of(rows), errors_of(of_fit)
    blind = f"{errors.blind:.1%} from the profile alone (worst {errors.blind_worst:.1%})"
    blind += f", {fit.blind:.1%} with its acceptance beta-geometric (worst {fit.blind_worst:.1%})"
    played = f"{errors.mechanism:.1%} from its own steps and acceptance (mechanism; worst {errors.mechanism_worst:.1%})"
    host = f"a run and its rerun differ by {errors.host:.1%}; {np.mean(late):.1%} of their steps started late"
    return [
        *knees(measured),
        *throughput_lines(rows, of_fit),
        f"error of a run's rounds/s and tokens/s: {blind}; {played}; host: {host}",
        verdict(errors),
    ]


def throughput_lines(rows: Rows, of_fit: Rows) -> Iterator[str]:
    """Yield a line for each kind of targets: its throughput in both worlds, by N."""
    by_name: dict[str, list[str]] = {}
    for row, fit in zip(rows, of_fit, strict=True):
        if row.quantity == "throughput":
            text = f"N = {row.case[COUNT]}: {number(row.sim)}, {number(fit.sim)}, {number(row.engine)}"
            by_name.setdefault(row.case[TARGETS], []).append(text)
    for name, texts in by_name.items():
        yield f"{name}: tokens/s simulated, with beta-geometric acceptance, measured: {'; '.join(texts)}"


def verdict(errors: Errors) -> str:
    """Say how far the prediction can be trusted."""
    queueing = f"the queueing model is within {errors.mechanism:.1%}"
    if errors.host >= UNSTEADY:
        return f"unsteady host: reruns differ by {errors.host:.0%}; {queueing}; repeat on a quiet host"
    if errors.blind <= max(AS_GOOD, OVER_HOST * errors.host):
        return f"steady host; the profile predicts runs as well as a rerun does, or within {AS_GOOD:.0%}; {queueing}"
    return f"steady host, and the profile's step times are not those of the runs ({errors.blind:.1%}); {queueing}"


def errors_of(rows: Rows) -> Errors:
    """Return the means of the absolute errors of the judged rows that were rerun and played back."""
    judged = [(row.parameters, row.mechanism, row.host) for row in rows if row.quantity in JUDGED]
    known = [[error.absolute for error in errors if error] for errors in judged if None not in errors]
    blind, mechanism, host = np.array(known).T
    return Errors(*map(float, (blind.mean(), blind.max(), mechanism.mean(), mechanism.max(), host.mean())))


def details(
    profile: HardwareProfile, runs: Sequence[Run], contradictions: Sequence[str], late: Sequence[float]
) -> dict[str, str]:
    """Return facts for the page, by name; `contradictions`: of replaying the runs' logs on fresh stations."""
    started = [run.header.started_unix_s for run in runs]
    return {
        "profile": f"{profile.digest()}, written {profile.provenance['written']}",
        "steps of the calibration that the host delayed": f"{profile.measured['delayed_share']:.1%}, left out",
        "steps of the calibration, its slowest pass over its quickest": f"+ {profile.measured['passes_differ']:.1%}",
        **{what: "; ".join(filter(None, shown)) for what, *shown in describe(profile) if "acceptance" in what},
        "calibration": "before, between and after the passes of runs; other prompts, other fleets",
        "passes of runs": f"over {(max(started) - min(started)) / 60:.1f} minutes",
        f"contradictions of {len(runs)} logs, replayed on fresh stations": "; ".join(contradictions) or "none",
        "steps that started late": f"{np.mean(late):.1%} on average, {max(late):.1%} in the worst run",
    }
