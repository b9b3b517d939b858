"""The demo: calibrate the demo pair among runs of N = 1, 2, ... on the engine, then simulate, compare, draw.

Parts of the calibration come before, between and after the passes of runs, on other prompts and other fleets, so that a
host that changes speed does so in both. The first part fixes the two verification times of the replayed targets. No
number of a run enters the profile (law 7): the profile is fitted from the calibration alone.
The engine runs every cell once a pass, in another random order each time. The difference between two runs of a cell is
the error that no model can go below.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from specfleet.calibration.run import Bench, bench_of, pair_of
from specfleet.engine.launch.serve import serve
from specfleet.experiments.compare.compare import Comparison, summarise
from specfleet.experiments.demo.cells import (
    DemoCell,
    DemoEffort,
    baseline_cells,
    calibration_scenario,
    cell_name,
    in_pass,
    replayed_cells,
    simulated_cell,
    slug_of,
)
from specfleet.experiments.demo.findings import contradictions_in, details, findings
from specfleet.experiments.demo.pictures import draw_demo
from specfleet.experiments.report.page import html_of
from specfleet.experiments.report.pages import demo_page
from specfleet.figures.style import save
from specfleet.fleet.errors import OutputError
from specfleet.fleet.files import check_folder, write_file
from specfleet.fleet.records.run import Run, write_run
from specfleet.fleet.times.profile import HardwareProfile, write_profile
from specfleet.sim.run import simulate

Report = Callable[[str], None]
PAGE, TABLE = "report.html", "comparison.json"


class DemoResult(msgspec.Struct, frozen=True):
    """The blind predictions against the engine's runs, with their three errors; `lines`: what to print, in order."""

    comparison: Comparison
    lines: list[str]


def run_demo(folder: Path, effort: DemoEffort, report: Report) -> DemoResult:
    """Run the whole demo into `folder`; `report` is called with the name of each stage as it begins."""
    check_folder(folder)
    bench = bench_of(
        pair_of(calibration_scenario(), effort.calibration.prompts), folder / "continuations", effort.calibration,
        lambda stage: report(f"calibration: {stage}"), report,
    )  # fmt: skip
    calibrate_part(bench, 0)
    first = bench.profile()
    planned = [*replayed_cells(first, effort), *baseline_cells(effort)]
    runs = defaultdict[str, list[Run]](list)
    for number in range(1, effort.passes + 1):
        for cell in in_pass(planned, number):
            report(f"engine, pass {number} of {effort.passes}: {cell_name(cell)}")
            slug, run = slug_of(cell), serve(cell, folder / "continuations").run
            runs[slug].append(run)
            write_run(run, folder / "records" / f"{slug}.pass-{number}.engine.parquet")
        calibrate_part(bench, number)
    profile = bench.profile()
    write_profile(profile, folder / "profile.json")

    cells, contradictions = [], contradictions_in([run for of_cell in runs.values() for run in of_cell])
    for one in planned:
        report(f"simulation: {cell_name(one)}")
        cells.append(simulated_cell(one, runs[slug_of(one)], profile))
        simulated = simulate(cells[-1].scenario)
        write_run(simulated, folder / "records" / f"{slug_of(one)}.sim.parquet")
        contradictions += contradictions_in([simulated])
    comparison = summarise((row for cell in cells for row in cell.rows), profile.digest())
    result = DemoResult(comparison, [f"report: {folder / PAGE}", *findings(cells)])
    try:
        write_results(folder, profile, cells, result, dict(details(profile, cells, contradictions)))
    except OutputError as error:
        error.result = result
        raise
    return result


def calibrate_part(bench: Bench, number: int) -> None:
    """Measure the part of the calibration that comes after pass `number`; acceptance and links once, at first."""
    if number == 0:
        bench.decode_continuations()
    bench.measure_pass(number)
    bench.draft_beside()
    if number == 0:
        bench.measure_acceptance()
        bench.measure_links()


def write_results(
    folder: Path, profile: HardwareProfile, cells: Sequence[DemoCell], result: DemoResult, facts: Mapping[str, str]
) -> None:
    """Write the table of errors, the figures and the page."""
    write_file(folder / TABLE, msgspec.json.format(msgspec.json.encode(result.comparison), indent=2) + b"\n")
    known = profile.provenance
    host = known.get("gpu") or known.get("processor", "this host")
    measured_at = f"Measured on {host} ({known.get('cores')} cores), profile {profile.digest()}."
    figures = draw_demo(cells)
    page = html_of(demo_page(result.lines[1:], result.comparison, list(figures.values()), profile, facts))
    for name, (figure, caption) in figures.items():
        save(figure, folder / f"{name}.png", f"{caption} {measured_at}")
    write_file(folder / PAGE, page)
