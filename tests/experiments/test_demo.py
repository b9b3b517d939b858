"""What the demo makes of its runs: mixed order, other prompts than the calibration's, eight lines, one figure."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

pytest.importorskip("torch")  # the demo calibrates

import specfleet
from specfleet.experiments.compare.compare import ComparedQuantity, Reruns, compare_metrics, simulated_reruns
from specfleet.experiments.console.printing import case_text
from specfleet.experiments.demo.cells import FULL, SHORT, DemoEffort, calibration_scenario, in_pass, planned_cells
from specfleet.experiments.demo.run import (
    AS_GOOD,
    Errors,
    details,
    draw_figures,
    findings,
    fitted,
    measured_cell,
    name_of,
    verdict,
    write_scenarios,
)
from specfleet.experiments.draw import draw
from specfleet.experiments.report.pages import demo_page
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.sweep import sweep
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.records.delays import not_delayed
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run
from specfleet.fleet.times.profile import HardwareProfile, write_profile
from specfleet.sim.run import simulate

SMALL = DemoEffort(msgspec.structs.replace(SHORT.calibration, prompts=6), ((1, 3, 4), (1, 6)), 2)
RECORD = {"model": "recorded", "depth": 5, "sessions": [[5, 2, 5, 0, 4, 1, 5], [0, 3, 1, 0, 2], [5, 5, 0, 5, 1, 4]]}
PROFILE: dict[str, Any] = {
    "name": "known", "draft": {"base_s": 0.001, "per_token_s": 0.0006}, "verify": {"base_s": 0.006},
    "decode": {"base_s": 0.004}, "acceptance": RECORD, "link": {"latency_s": 0.0004},
    "overhead": {"own": {"drafter": {"queued": {"mean_s": 0.0002}, "woken": {"mean_s": 0.0002}}}},
    "provenance": {"written": "2026-11-22T00:00:00+00:00"}, "measured": {"delayed_share": 0.0, "passes_differ": 0.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    return convert(PROFILE, HardwareProfile, "profile")


class Demo(NamedTuple):
    """What a demo has before it says and draws something."""

    simulated: list[CellResult]
    measured: list[CellResult]
    runs: list[list[Run]]
    rows: list[ComparedQuantity]
    of_fit: list[ComparedQuantity]

    def lines(self) -> list[str]:
        return findings(self.measured, self.rows, self.of_fit, [0.0, 0.02])


def demo_of(profile: HardwareProfile, *slowness: float) -> Demo:
    """A small demo, with a run of each cell for each slowness of the drafter; simulations stand for the engine."""
    slow = [msgspec.structs.replace(profile, draft=profile.draft.slowed(factor)) for factor in slowness]
    cells = [(cell, msgspec.structs.replace(one, profile=profile)) for cell, one in planned_cells(profile, SMALL)]
    runs = [[simulate(msgspec.structs.replace(one, profile=other)) for other in slow] for _, one in cells]
    simulated, of_fit = sweep(cells, seeds=4), sweep(fitted(cells), seeds=4)
    reruns = [simulated_reruns(one, of_cell) for (_, one), of_cell in zip(cells, runs, strict=True)]
    measured = list(map(measured_cell, simulated, reruns))
    rows, rows_of_fit = (
        [row for one, other in zip(of, reruns, strict=True) for row in compare_metrics(one.cell, one.metrics, other)]
        for of in (simulated, of_fit)
    )
    return Demo(simulated, measured, runs, rows, rows_of_fit)


@pytest.fixture(scope="module")
def demo(profile: HardwareProfile) -> Demo:
    return demo_of(profile, 1.0, 1.02)


def test_each_pass_has_all_cells_in_another_order() -> None:
    first, second = (in_pass(12, number) for number in (1, 2))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert first == in_pass(12, 1)


def test_no_number_of_a_predicted_run_enters_the_profile(profile: HardwareProfile) -> None:
    """The calibration has other prompts; runs have no profile, and decode as many prompts as calibrated it."""
    assert calibration_scenario().workload.prompts == "demo/calibration"
    for effort in (FULL, SHORT):
        planned = [scenario for _, scenario in planned_cells(profile, effort)]
        assert {cell.workload.prompts for cell in planned} == {"demo/evaluation"}
        assert {cell.workload.requests for cell in planned} == {effort.calibration.prompts}
        assert not any(isinstance(cell.profile, HardwareProfile) for cell in planned)


def test_the_demo_ends_in_eight_lines_at_most(demo: Demo) -> None:
    lines = demo.lines()
    assert len(lines) <= 8
    assert "from 3 targets on (N_full, equations), " in lines[0]
    assert [line for line in lines if line.startswith("standalone: tokens/s simulated, with beta-geometric")]
    assert "with its acceptance beta-geometric" in lines[-2]
    assert "mechanism" in lines[-2]
    assert "rerun" in lines[-2]


def test_recorded_and_fitted_acceptance_stand_side_by_side(demo: Demo, profile: HardwareProfile) -> None:
    page = demo_page([], demo.rows, demo.of_fit, [], profile, details(profile, demo.runs[0], [], [0.0, 0.02]))
    shown = {(row[0], row[1]): row for row in page.grids[0].rows}
    assert page.grids[0].headings[4:6] == ("error, %", "beta-geometric, %")
    for row, fit in zip(demo.rows, demo.of_fit, strict=True):
        assert (row.quantity, row.case, row.runs, row.mechanism) == (fit.quantity, fit.case, fit.runs, fit.mechanism)
        if row.parameters and fit.parameters:
            errors = shown[row.quantity, case_text(row.case)][4:6]
            assert errors == (100 * row.parameters.value, 100 * fit.parameters.value)
            drafted = row.case["targets"] != "standalone"
            assert (row.sim != fit.sim) == drafted or row.quantity != "throughput"
    assert "a = " in dict(page.grids[-1].rows)["acceptance, beta-geometric"]


def test_a_measured_cell_has_the_range_of_its_runs() -> None:
    simulated = CellResult({"verifiers.count": 3}, "sim", 20, "", {}, {"N_full": 3.0})
    runs = [{"load": Metric(value, unit="share")} for value in (0.9, 0.8, 0.95)]
    cell = measured_cell(simulated, Reruns(runs, []))
    assert (cell.world, cell.seeds, cell.analytic) == ("engine", 3, simulated.analytic)
    assert cell.metrics == {"load": Metric(0.9, 0.8, 0.95, "share")}


@pytest.mark.parametrize(
    ("blind", "host", "said"),
    [(0.02, 0.01, "as well as a rerun"), (0.10, 0.02, "not those of the runs"), (0.02, 0.12, "repeat on a quiet host")],
)
def test_the_verdict_names_what_is_off(blind: float, host: float, said: str) -> None:
    assert AS_GOOD > 0.02
    assert said in verdict(Errors(blind, blind, 0.004, 0.01, host))


def test_a_host_that_changed_is_unsteady(profile: HardwareProfile) -> None:
    assert "unsteady host" in demo_of(profile, 1.0, 2.0).lines()[-1]


def test_the_records_scenarios_are_simulated_with_the_demos_profile(profile: HardwareProfile, tmp_path: Path) -> None:
    cells = planned_cells(profile, SMALL)
    write_profile(profile, tmp_path / "profile.json")
    write_scenarios(cells, tmp_path / "records")
    files = sorted((tmp_path / "records").glob("*.toml"))
    assert len(files) == len(cells)
    for (_, planned), file in zip(sorted(cells, key=lambda cell: name_of(cell[1])), files, strict=True):
        asked = msgspec.structs.replace(planned, profile=profile)
        assert specfleet.simulate(file).run.digest() == simulate(asked).digest()


def test_delayed_steps_do_not_count() -> None:
    assert not_delayed([1.0, 1.1, 0.9, 1.9, 2.2, 30.0]).tolist() == [1.0, 1.1, 0.9, 1.9, 2.2]
    assert not_delayed([]).tolist() == []


def test_the_figures_show_replayed_targets_in_both_worlds(demo: Demo, tmp_path: Path) -> None:
    figures = draw_figures(tmp_path, demo.simulated, demo.measured, demo.runs)
    curves, caption, rows, _ = figures["throughput-vs-n"]
    assert draw("sweep", tmp_path / "throughput-vs-n.csv", panels=True).rows.round(9).equals(rows.round(9))
    assert [axes.get_title().partition("-")[0] for axes in curves.axes] == ["targets = replayed"] * 2
    assert len(curves.legends[0].get_texts()) == 3
    assert "medians and ranges of its runs" in caption
    assert [text.get_text()[:3] for text in curves.axes[0].texts[::2]] == ["$N_", "$N_"]
    assert [len(axes.texts) for axes in curves.axes] == [4, 2]
    assert [axes.get_title(loc="left").split(", ")[1] for axes in figures["timeline"][0].axes] == ["N = 1", "N = 6"]
