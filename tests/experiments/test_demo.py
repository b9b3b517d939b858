"""What the demo makes of its runs: mixed order, other prompts than the calibration's, eight lines, one figure."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")  # the demo calibrates

from specfleet.experiments.demo.cells import (
    FULL,
    SHORT,
    DemoCell,
    DemoEffort,
    baseline_cells,
    calibration_scenario,
    in_pass,
    replayed_cells,
    simulated_cell,
    slug_of,
)
from specfleet.experiments.demo.findings import (
    AS_GOOD,
    Errors,
    findings,
    level_from,
    level_range,
    level_text,
    replayed_cases,
    verdict,
)
from specfleet.experiments.demo.pictures import marks_table, throughput_table
from specfleet.figures import throughput
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.records.delayed import delayed_share, not_delayed
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import simulate

SMALL = DemoEffort(msgspec.structs.replace(SHORT.calibration, prompts=6), ((1, 3, 4), (1, 6)), 2)
PROFILE: dict[str, Any] = {
    "name": "known", "draft": {"base_s": 0.001, "per_token_s": 0.0006}, "verify": {"base_s": 0.006},
    "decode": {"base_s": 0.004}, "acceptance": {"model": "geometric", "beta": 0.7}, "link": {"latency_s": 0.0004},
    "overhead": {"own": {"drafter": {"queued": {"mean_s": 0.0002}, "woken": {"mean_s": 0.0002}}}},
    "provenance": {"written": "2026-11-22T00:00:00+00:00"},
}  # fmt: skip


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    return convert(PROFILE, HardwareProfile, "profile")


def slowed(profile: HardwareProfile, factor: float) -> HardwareProfile:
    """The profile with a drafter that takes so many times as long."""
    return msgspec.structs.replace(profile, draft=profile.draft.slowed(factor))


def cells_of(profile: HardwareProfile, *slowness: float) -> list[DemoCell]:
    """All cells of a small demo, with a run for each slowness of the host."""
    made = []
    for planned in (*replayed_cells(profile, SMALL), *baseline_cells(SMALL)):
        known = [msgspec.structs.replace(planned, profile=slowed(profile, slow)) for slow in slowness]
        runs = [simulate(msgspec.structs.replace(scenario, seed=seed)) for seed, scenario in enumerate(known)]
        made.append(simulated_cell(planned, runs, profile))
    return made


@pytest.fixture(scope="module")
def cells(profile: HardwareProfile) -> list[DemoCell]:
    return cells_of(profile, 1.0, 1.0)


def test_each_pass_has_all_cells_in_another_order(profile: HardwareProfile) -> None:
    planned = [*replayed_cells(profile, FULL), *baseline_cells(FULL)]
    slugs = [[slug_of(cell) for cell in in_pass(planned, number)] for number in (1, 2)]
    assert sorted(slugs[0]) == sorted(slugs[1]) == sorted(slug_of(cell) for cell in planned)
    assert slugs[0] != slugs[1]
    assert slugs[0] == [slug_of(cell) for cell in in_pass(planned, 1)]
    assert all(Path(slug).name == slug and " " not in slug for slug in slugs[0])


def test_no_number_of_a_predicted_run_enters_the_profile(profile: HardwareProfile) -> None:
    """The calibration has other prompts; runs have no profile, and decode as many prompts as calibrated it."""
    assert calibration_scenario().workload.prompts == "demo/calibration"
    for effort in (FULL, SHORT):
        planned = [*replayed_cells(profile, effort), *baseline_cells(effort)]
        assert {cell.workload.prompts for cell in planned} == {"demo/evaluation"}
        assert {cell.workload.requests for cell in planned} == {effort.calibration.prompts}
        assert not any(isinstance(cell.profile, HardwareProfile) for cell in planned)


def test_the_demo_ends_in_eight_lines_at_most(cells: list[DemoCell]) -> None:
    lines = findings(cells)
    assert len(lines) <= 8
    assert "N_full = 3 by equation (12)" in lines[0]
    assert "simulated" in lines[1]
    assert "standalone" in lines[4]
    assert "mechanism" in lines[5]
    assert "rerun" in lines[6]


def test_the_plateau_begins_at_measured_N_full(cells: list[DemoCell]) -> None:
    few, _ = replayed_cases(cells)
    assert level_from(few, "rounds_per_s") in (3, 4)
    assert level_from(few, "load") in (3, 4)


def test_N_full_is_said_with_the_range_of_its_passes(profile: HardwareProfile) -> None:
    few, _ = replayed_cases(cells_of(profile, 1.0, 3.0))  # a slow drafter is full earlier
    assert level_range(few, "load") == (3, 4)
    assert level_text(few, "load").endswith("(3 to 4 by pass)")
    assert level_range(few[-1:], "load") == (4, 4)
    assert level_text(few[-1:], "load") == "N = 4"


@pytest.mark.parametrize(
    ("blind", "host", "said"),
    [(0.02, 0.01, "as well as a rerun"), (0.10, 0.02, "not those of the runs"), (0.02, 0.12, "repeat on a quiet host")],
)
def test_the_verdict_names_what_is_off(blind: float, host: float, said: str) -> None:
    assert AS_GOOD > 0.02
    assert said in verdict(Errors(blind, blind, 0.004, 0.01, host))


def test_a_host_that_changed_is_unsteady(profile: HardwareProfile) -> None:
    assert "unsteady host" in findings(cells_of(profile, 1.0, 2.0))[-1]


def test_delayed_steps_do_not_count_and_are_said(cells: list[DemoCell]) -> None:
    assert not_delayed([1.0, 1.1, 0.9, 1.9, 2.2, 30.0]).tolist() == [1.0, 1.1, 0.9, 1.9, 2.2]
    assert not_delayed([]).tolist() == []
    assert delayed_share(cells[0].runs[0]) == 0.0


def test_the_figure_has_ranges_of_runs_and_marks(cells: list[DemoCell]) -> None:
    cases = replayed_cases(cells)
    table, marks = throughput_table(cases), marks_table(cases)
    engine = table[table.source == "engine"].reset_index()
    for cell, (_, row) in zip((cell for case in cases for cell in case), engine.iterrows(), strict=True):
        values = [run["throughput"].value for run in cell.reruns.engine]
        assert (row.throughput_low, row.throughput_high) == pytest.approx((min(values), max(values)))
    figure = throughput.draw(table, marks)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert len(figure.axes) == 2
    assert sum("measured" in text for text in texts) == 2
    assert sum(text.startswith("error ") for text in texts) == 2
