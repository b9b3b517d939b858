"""Screening by equations: the stated errors hold, and are of the cells that they name."""

import numpy as np
import pytest

from bench.screening import (
    ERRORS,
    ROUNDS,
    VARIABILITIES,
    Cell,
    by_region,
    cells_of,
    equations_of,
    missed,
    scenario_of,
    spread_of,
)
from fleet.times.durations import ratios
from fleet.times.step_time import StepTime
from tests.helpers.marks import slow

NOISE = 0.04  # of a simulation of a few thousand rounds


@pytest.mark.parametrize(
    "cell",
    [
        Cell(4, 4.0, 0.0, 0.0),
        Cell(8, 6.0, 1.0, 0.25),
        Cell(3, 2.0, 0.25, 0.0),
        Cell(2, 1.5, 4.0, 0.1),
        slow(Cell(24, 20.0, 2.0, 1.0)),
    ],
)
def test_stated_error_holds_at_simulated_cells(cell: Cell) -> None:
    stated = ERRORS[cell.region].worst if cell.region in ERRORS else 0.0
    assert missed(cell, rounds=3000, seed=0)["approximate"] <= stated + NOISE


def test_every_stated_region_is_in_the_grid() -> None:
    regions = {cell.region for cell in cells_of(100, seed=1)}
    assert set(ERRORS) <= regions
    assert regions - set(ERRORS) <= {"nothing varies: exact"}
    for stated in ERRORS.values():
        assert 0 < stated.mean < stated.p90 < stated.worst


@pytest.mark.parametrize("scv", VARIABILITIES)
def test_times_of_a_cell_vary_as_it_says(scv: float) -> None:
    _, exact = spread_of(scv)
    scenario = scenario_of(Cell(2, 2.0, scv, 0.0), rounds=100, seed=0)
    draft = scenario.profile.draft  # type: ignore[union-attr]
    assert isinstance(draft, StepTime)
    drawn = ratios(draft.spread, np.random.default_rng(0))
    factors = np.array([next(drawn) for _ in range(40_000)])
    assert factors.mean() == pytest.approx(1, abs=0.03)
    assert factors.var() == pytest.approx(exact, rel=0.15, abs=1e-9)
    assert exact == pytest.approx(scv, rel=0.02)


def test_cells_are_drawn_by_their_seed() -> None:
    assert cells_of(10, 1) == cells_of(10, 1)
    assert cells_of(10, 1) != cells_of(10, 2)


def test_errors_are_summarised_by_region_in_hundredths() -> None:
    row = missed(Cell(4, 4.0, 1.0, 1.0), rounds=ROUNDS // 30, seed=0)
    (region,) = by_region([row | {"approximate": 0.5}, row | {"approximate": 1.0}])
    assert (region["cells"], region["mean, %"], region["worst, %"]) == (2, 75, 100)
    assert region["stated mean, %"] == 100 * ERRORS[row["region"]].mean


def test_a_drafter_with_one_target_never_waits() -> None:
    for scv in VARIABILITIES:
        assert equations_of(Cell(1, 3.0, scv, 1.0)) == pytest.approx(0.25)
