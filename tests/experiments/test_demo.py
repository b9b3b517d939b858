"""What the demo makes of its runs: passes in one random order, three errors last, marks of an unsteady host."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")  # the demo calibrates

from calibrate.run import QUICK
from experiments.demo.cells import (
    FULL,
    SHORT,
    DemoCell,
    DemoEffort,
    Planned,
    baseline_cells,
    calibration_scenario,
    in_passes,
    real_cells,
    replayed_cells,
    simulated_cell,
)
from experiments.demo.findings import findings
from experiments.demo.pictures import marks_table, throughput_table
from experiments.worlds import with_seed
from figures import throughput
from fleet.inputs.strict import convert
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile
from sim.run import simulate

SMALL = DemoEffort(msgspec.structs.replace(QUICK, prompts=6), (1, 3), (), 3)
PROFILE: dict[str, Any] = {
    "name": "known", "draft": {"base_s": 0.001, "per_token_s": 0.0006}, "verify": {"base_s": 0.006},
    "acceptance": {"model": "geometric", "beta": 0.7}, "link": {"latency_s": 0.0004},
    "overhead": {"own": {"drafter": {"queued": {"mean_s": 0.0002}, "woken": {"mean_s": 0.0002}}}},
    "provenance": {"written": "2026-11-22T00:00:00+00:00"},
}  # fmt: skip


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    return convert(PROFILE, HardwareProfile, "profile")


def slowed(scenario: Scenario, factor: float) -> Run:
    """A run of the scenario with a drafter that takes so many times as long."""
    profile = scenario.profile
    assert isinstance(profile, HardwareProfile)
    slower = msgspec.structs.replace(profile, draft=profile.draft.slowed(factor))
    return simulate(msgspec.structs.replace(scenario, profile=slower))


@pytest.fixture(scope="module")
def cells(profile: HardwareProfile) -> list[DemoCell]:
    """Two kinds of replayed targets at N = 1 and 3; one host out of three runs is half as fast, but for one cell."""
    made = []
    for number, planned in enumerate(replayed_cells(profile, SMALL)):
        slowness = (1.0, 1.0, 1.0) if number == 0 else (1.0, 1.0, 2.0)
        runs = [slowed(with_seed(planned.scenario, seed), slow) for seed, slow in enumerate(slowness)]
        made.append(simulated_cell(planned, runs))
    return made


def test_cells_run_equally_often_in_a_mixed_order(profile: HardwareProfile) -> None:
    planned = list(replayed_cells(profile, msgspec.structs.replace(SMALL, replayed_counts=tuple(range(1, 9)))))
    order = [cell.slug for cell in in_passes(planned, 3)]
    assert Counter(order) == {cell.slug: 3 for cell in planned}
    assert order == [cell.slug for cell in in_passes(planned, 3)]
    assert sum(one == other for one, other in pairwise(order)) <= 6
    places = {cell.slug: np.flatnonzero([slug == cell.slug for slug in order]) for cell in planned}
    assert np.mean([np.ptp(at) for at in places.values()]) > len(order) / 3  # spread over the demo


def test_every_cell_decodes_the_pair_of_each_prompt_that_calibrates(profile: HardwareProfile) -> None:
    for effort in (FULL, SHORT):
        planned = [*replayed_cells(profile, effort), *real_cells(profile, effort), *baseline_cells(profile, effort)]
        assert {cell.scenario.workload.requests for cell in planned} == {effort.calibration.prompts}
        assert {cell.scenario.workload.prompts for cell in planned} == {"demo/evaluation"}
    assert calibration_scenario().workload.prompts == "demo/calibration"


def test_last_lines_give_three_errors_and_steady_cells(profile: HardwareProfile, cells: list[DemoCell]) -> None:
    *_, title, mechanism, parameters, host, steady = findings(profile, cells, [])
    assert title == "replayed targets, rounds_per_s, 4 cells of 3 runs:"
    assert "mechanism" in mechanism
    assert "blind" in parameters
    assert "rerun" in host
    assert "1 of 4 cells are steady" in steady


def test_a_contradiction_of_a_log_is_told(profile: HardwareProfile, cells: list[DemoCell]) -> None:
    lines = findings(profile, cells, ["drafter: step 3 is another"])
    assert "replay of 16 logs on fresh stations: drafter: step 3 is another" in lines


def test_points_are_medians_and_unsteady_cells_are_marked(cells: list[DemoCell]) -> None:
    table = throughput_table(cells)
    engine = table[table.source == "engine"].reset_index()
    for cell, (_, row) in zip(cells, engine.iterrows(), strict=True):
        values = sorted(run["throughput"].value for run in cell.reruns.engine)
        assert (row.throughput_low, row.throughput, row.throughput_high) == pytest.approx(tuple(values))
    assert engine.unsteady.tolist() == [cell.steady("throughput") is False for cell in cells]
    assert engine.unsteady.any()
    figure = throughput.draw(table, marks_table(cells, []))
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert "engine, unsteady host" in labels
    assert "runs played back: steps, acceptance" in labels


def test_names_of_cells_are_fit_for_files(profile: HardwareProfile) -> None:
    slugs = [planned.slug for planned in replayed_cells(profile, SMALL)]
    assert len(set(slugs)) == len(slugs)
    assert all(Path(slug).name == slug and " " not in slug for slug in slugs)
    assert all(isinstance(planned, Planned) for planned in replayed_cells(profile, SMALL))
