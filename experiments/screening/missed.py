"""What the equations say of a cell, what a simulation says, and by how much the former miss the latter, by region."""

import time
from collections.abc import Sequence

import msgspec
import numpy as np

from experiments.screening.cells import MOST_TARGETS, Z_OVER_S, Cell, scenario_of, spread_of
from fleet.records.metrics import measure
from sim.analytic import round_rate_bounds
from sim.approximate import Error, rates_of_unlike, rounds_per_s
from sim.mva import mean_value_analysis
from sim.run import simulate

TIMED_CELLS = 100_000


class Seen(msgspec.Struct, frozen=True):
    """One cell: what the equations say, and what a simulation says; rounds a second.

    Keys:
        region: The region that it counts to.
        targets (targets): `N`.
        ratio (ratio): Z / S, the mean over the targets.
        scv (ratio): Squared coefficient of variation of S.
        return_scv (ratio): The same of Z.
        simulated (rounds/s): R_q of the simulation.
        half_width (share): Half of its 95 % interval; NaN where it has none.
        approximate (rounds/s): R_q by approximate mean value analysis.
        bound (rounds/s): The upper bound, min(N / (S + Z), 1 / S).
        exact (rounds/s): Exact mean value analysis; NaN but for exponential S and like targets.
    """

    region: str
    targets: int
    ratio: float
    scv: float
    return_scv: float
    simulated: float
    half_width: float
    approximate: float
    bound: float
    exact: float


class Missed(msgspec.Struct, frozen=True):
    """The errors of a region's cells; `bound` and `exact` as in `Seen`, None where no cell has it.

    `half_width`: the mean half interval of the simulations themselves, as a share.
    """

    region: str
    cells: int
    approximate: Error
    bound: Error
    exact: Error | None
    half_width: float


def equations_of(cell: Cell) -> float:
    """R_q of a cell by approximate mean value analysis, a second."""
    scv, return_scv = (spread_of(one)[1] for one in (cell.scv, cell.return_scv))
    if cell.unlike:
        return float(rates_of_unlike(1.0, cell.Z_s, scv, return_scv).sum())
    return float(rounds_per_s(len(cell.Z_s), 1.0, cell.Z_s[0], scv, return_scv))


def seen(cell: Cell, rounds: int, seed: int) -> Seen:
    """Simulate a cell for about so many rounds, and ask the equations."""
    simulated = measure(simulate(scenario_of(cell, rounds, seed)))["rounds_per_s"]
    N, Z_s = len(cell.Z_s), float(np.mean(cell.Z_s))
    highest = min(sum(1 / (1 + Z) for Z in cell.Z_s), 1.0) if cell.unlike else round_rate_bounds(N, 1.0, Z_s)[1]
    exact = mean_value_analysis(N, [1.0], Z_s).throughput_per_s if cell.scv == 1 and not cell.unlike else float("nan")
    scv, return_scv = (spread_of(one)[1] for one in (cell.scv, cell.return_scv))
    half_width = (simulated.high - simulated.low) / 2 / simulated.value
    return Seen(
        cell.region, N, Z_s, scv, return_scv, simulated.value, half_width, equations_of(cell), highest, exact
    )  # fmt: skip


def by_region(cells: Sequence[Seen]) -> list[Missed]:
    """Return the errors of each region, in the order in which cells of it first appear by name."""
    found = []
    for region in sorted({one.region for one in cells}):
        own = [one for one in cells if one.region == region]
        exact = [one for one in own if not np.isnan(one.exact)]
        found.append(
            Missed(
                region,
                len(own),
                error_of([one.approximate / one.simulated for one in own]),
                error_of([one.bound / one.simulated for one in own]),
                error_of([one.exact / one.simulated for one in exact]) if exact else None,
                float(np.nanmean([one.half_width for one in own])),
            )
        )
    return found


def error_of(ratios: Sequence[float]) -> Error:
    """Summarise ratios of what equations say and what simulations say."""
    missed = np.abs(np.asarray(ratios) - 1)
    return Error(float(missed.mean()), float(np.quantile(missed, 0.9)), float(missed.max()))


def seconds_per_cell(unlike: bool, cells: int = TIMED_CELLS) -> float:
    """Processor time of the equations for a cell, of many at once that are drawn as the grid is."""
    rng = np.random.default_rng(1)
    if unlike:
        cells //= 10
        Z_s = np.exp(rng.uniform(*np.log(Z_OVER_S), size=(cells, 8)))
        begun_s = time.process_time()
        rates_of_unlike(1.0, Z_s, rng.uniform(0, 2, (cells, 1)))
        return (time.process_time() - begun_s) / cells
    N, ratio, scv = rng.integers(2, MOST_TARGETS + 1, cells), np.exp(rng.uniform(*np.log(Z_OVER_S), size=cells)), 1.5
    begun_s = time.process_time()
    rounds_per_s(N, 1.0, ratio, rng.uniform(0, scv, cells))
    return (time.process_time() - begun_s) / cells
