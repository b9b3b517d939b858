"""Screening by equations: the stated errors hold, and are of the cells that they name."""

import msgspec
import numpy as np
import pytest

from experiments.bench.screening import bench_screening
from experiments.screening.cells import VARIABILITIES, Cell, cells_of, scenario_of, spread_of
from experiments.screening.command import is_worse, tell
from experiments.screening.missed import Missed, by_region, equations_of, error_of, seconds_per_cell, seen
from fleet.times.durations import ratios
from fleet.times.step_time import StepTime
from sim.approximate import ERRORS, Error
from tests.helpers.marks import slow

NOISE = 0.04  # of a simulation of a few thousand rounds


@pytest.mark.parametrize(
    "cell",
    [
        Cell((4.0,) * 4, 0.0, 0.0),
        Cell((6.0,) * 8, 1.0, 0.25),
        Cell((2.0,) * 3, 0.25, 0.0),
        Cell((1.5,) * 2, 4.0, 0.1),
        Cell((1.0, 4.0, 16.0), 0.5, 0.5, unlike=True),
        slow(Cell((20.0,) * 24, 2.0, 1.0)),
        slow(Cell((0.5, 3.0, 9.0, 27.0, 5.0), 4.0, 1.0, unlike=True)),
    ],
)
def test_the_stated_error_holds_at_cells_that_are_simulated(cell: Cell) -> None:
    stated = ERRORS[cell.region].worst if cell.region in ERRORS else 0.0
    one = seen(cell, rounds=3000, seed=0)
    assert one.approximate == pytest.approx(one.simulated, rel=stated + NOISE)
    assert one.approximate <= one.bound * (1 + 1e-9)


def test_every_region_with_a_stated_error_is_in_the_grid_and_errors_rise() -> None:
    regions = {cell.region for cell in cells_of(60, 40, seed=1)}
    assert set(ERRORS) <= regions
    assert regions - set(ERRORS) <= {"nothing varies: exact"}
    for stated in ERRORS.values():
        assert 0 < stated.mean < stated.p90 < stated.worst


@pytest.mark.parametrize("scv", VARIABILITIES)
def test_a_cells_times_vary_as_it_says(scv: float) -> None:
    content, exact = spread_of(scv)
    scenario = scenario_of(Cell((2.0, 2.0), scv, 0.0), rounds=100, seed=0)
    draft = scenario.profile.draft  # type: ignore[union-attr]
    assert isinstance(draft, StepTime)
    assert content["spread"] in type(draft.spread).__struct_config__.tag  # type: ignore[operator]
    drawn = ratios(draft.spread, np.random.default_rng(0))
    factors = np.array([next(drawn) for _ in range(40_000)])
    assert factors.mean() == pytest.approx(1, abs=0.03)
    assert factors.var() == pytest.approx(exact, rel=0.15, abs=1e-9)
    assert exact == pytest.approx(scv, rel=0.02)


def test_drawn_cells_are_the_seeds() -> None:
    assert cells_of(5, 5, 1) == cells_of(5, 5, 1)
    assert cells_of(5, 5, 1) != cells_of(5, 5, 2)


def test_errors_are_told_by_region_and_one_beyond_what_is_stated_ends_with_status_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = Cell((4.0,) * 4, 1.0, 1.0)
    row = seen(cell, rounds=600, seed=0)
    half = msgspec.structs.replace(row, simulated=row.approximate / 2)
    assert by_region([half])[0].approximate == error_of([2.0]) == Error(1.0, 1.0, 1.0)
    assert tell([half], None) == 1
    assert "beyond 1.25 times" in capsys.readouterr().err
    stated = ERRORS[cell.region]
    good = Missed(cell.region, 1, stated, stated, None, 0.0)
    assert not is_worse(good)


def test_a_drafter_with_one_target_never_waits_whatever_varies() -> None:
    for scv in VARIABILITIES:
        assert equations_of(Cell((3.0,), scv, 1.0)) == pytest.approx(0.25)


def test_a_hundred_thousand_cells_take_less_than_a_second() -> None:
    assert seconds_per_cell(unlike=False) < 1e-5


def test_the_benchmark_shows_cells_a_second() -> None:
    turns = bench_screening(1)
    assert all(done[0].rate > 1000 for done in turns.values())
