"""The demo: calibrate the demo pair here, then, on other prompts, run N = 1, 2, ... in both worlds, compare, draw.

The order is the argument: the profile is written first, from calibration prompts; it fixes the two verification times
of the replayed targets; only then do engine and simulation run the same scenarios on evaluation prompts (law 7).
The simulation is run twice: blind, with the profile alone; and at the pace that the host's control computation had
during the engine's run, because a shared host is slower at one time than at another.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from calibrate.run import calibrate
from experiments.compare import Comparison, compare_metrics, summarise
from experiments.demo.cells import (
    DemoEffort,
    baseline_cells,
    calibration_scenario,
    interleaved,
    real_cells,
    replayed_cells,
    run_demo_cell,
)
from experiments.demo.report import draw_demo, findings, where_to_find
from fleet.errors import OutputError
from fleet.files import check_folder, write_file
from fleet.times.profile import write_profile


class DemoResult(msgspec.Struct, frozen=True):
    """The comparison at the measured pace and the blind one; `findings`: lines to print, with the files at the end."""

    comparison: Comparison
    blind: Comparison
    findings: list[str]


def run_demo(folder: Path, effort: DemoEffort, report: Callable[[str], None]) -> DemoResult:
    """Run the whole demo into `folder`; `report` is called with the name of each stage as it begins."""
    check_folder(folder)
    base = calibration_scenario()
    profile = calibrate(base, folder / "continuations", effort.calibration, report)
    write_profile(profile, folder / "profile.json")

    cells = [
        run_demo_cell(case, scenario, folder, report)
        for case, scenario in interleaved(replayed_cells(profile, effort), real_cells(profile, effort))
    ]
    report("co-located and standalone baselines")
    baselines = [run_demo_cell(case, scenario, folder, report) for case, scenario in baseline_cells(profile, effort)]
    comparison, blind = (
        summarise(
            (row for cell in cells for row in compare_metrics(cell.case, getattr(cell, simulated), cell.engine)),
            profile.digest(),
        )
        for simulated in ("sim", "blind")
    )
    result = DemoResult(comparison, blind, findings(profile, cells, baselines, comparison, blind))
    try:
        for name, content in (("comparison", comparison), ("comparison-blind", blind)):
            write_file(folder / f"{name}.json", msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
        pictures = draw_demo(folder, profile, cells, baselines)
    except OutputError as error:
        error.result = result
        raise
    return msgspec.structs.replace(result, findings=[*result.findings, *where_to_find(folder, pictures)])
