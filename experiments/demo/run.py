"""The demo: calibrate the demo pair here, then, on other prompts, run N = 1, 2, ... in both worlds, compare, draw.

The order matters. The profile is written first, from calibration prompts, and fixes the two verification times of the
replayed targets. Then engine and simulation run the same scenarios on evaluation prompts (law 7).
The engine runs every cell several times, in a random order over the whole demo, because a shared host changes speed.
The difference between two runs of a cell is the error that no model can go below.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from calibrate.run import calibrate
from engine.launch.serve import serve
from experiments.compare.compare import Comparison, summarise
from experiments.demo.cells import (
    DemoEffort,
    Planned,
    baseline_cells,
    calibration_scenario,
    in_passes,
    real_cells,
    replayed_cells,
    simulated_cell,
)
from experiments.demo.findings import contradictions_in, findings
from experiments.demo.pictures import draw_demo
from fleet.errors import OutputError
from fleet.files import check_folder, write_file
from fleet.records.run import Run, write_run
from fleet.times.profile import write_profile
from sim.run import simulate


class DemoResult(msgspec.Struct, frozen=True):
    """The blind predictions against the engine's runs, with their three errors; `findings`: lines to print, in order.

    `files`: lines that say where everything is.
    """

    comparison: Comparison
    findings: list[str]
    files: list[str] = []


def run_demo(folder: Path, effort: DemoEffort, report: Callable[[str], None]) -> DemoResult:
    """Run the whole demo into `folder`; `report` is called with the name of each stage as it begins."""
    check_folder(folder)
    profile = calibrate(calibration_scenario(), folder / "continuations", effort.calibration, report)
    write_profile(profile, folder / "profile.json")

    planned = [cell for kind in (replayed_cells, real_cells, baseline_cells) for cell in kind(profile, effort)]
    runs = measured_runs(planned, effort.passes, folder, report)
    contradictions = contradictions_in([run for of_cell in runs for run in of_cell])
    cells = []
    for cell, of_cell in zip(planned, runs, strict=True):
        report(f"simulating {cell.name}")
        simulated = simulate(cell.scenario)
        write_run(simulated, folder / "records" / f"{cell.slug}.sim.parquet")
        contradictions += contradictions_in([simulated])
        cells.append(simulated_cell(cell, of_cell))
    comparison = summarise((row for cell in cells for row in cell.rows), profile.digest())
    result = DemoResult(comparison, findings(profile, cells, contradictions))
    try:
        content = msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"
        write_file(folder / "comparison.json", content)
        pictures = draw_demo(folder, profile, cells)
    except OutputError as error:
        error.result = result
        raise
    return msgspec.structs.replace(result, files=where_to_find(folder, pictures))


def measured_runs(planned: list[Planned], passes: int, folder: Path, report: Callable[[str], None]) -> list[list[Run]]:
    """Let the engine run every cell so often, keep the records, and return the runs of each cell, one a pass."""
    runs = defaultdict[str, list[Run]](list)
    for cell in in_passes(planned, passes):
        number = len(runs[cell.slug]) + 1
        report(f"{cell.name}, pass {number}")
        runs[cell.slug].append(serve(cell.scenario, folder / "continuations").run)
        write_run(runs[cell.slug][-1], folder / "records" / f"{cell.slug}.pass-{number}.engine.parquet")
    return [runs[cell.slug] for cell in planned]


def where_to_find(folder: Path, pictures: dict[str, Path]) -> list[str]:
    """Return the lines that say where everything is."""
    return [
        *(f"{what}: {path}" for what, path in pictures.items()),
        f"table: {folder / 'comparison.json'}; profile: {folder / 'profile.json'}; records: {folder / 'records'}",
    ]
