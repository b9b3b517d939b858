"""How many stars the equations look at in a second, beside exact mean value analysis, which takes them one by one."""

import time
from collections.abc import Callable

import numpy as np

from experiments.bench.interleaved import Done, Turn, interleaved
from experiments.screening.missed import TIMED_CELLS, seconds_per_cell
from sim.mva import mean_value_analysis

LIKE, UNLIKE, EXACT = "approximate, 2 to 48 like targets", "approximate, 8 unlike targets", "exact, exponential S"
ONE_BY_ONE = 2000


def bench_screening(repetitions: int) -> dict[str, list[Turn]]:
    """Cells a second of processor time of the equations that screen fleets."""
    contestants: dict[str, Callable[[int], Done]] = {
        LIKE: lambda _: Done(TIMED_CELLS, time_s=TIMED_CELLS * seconds_per_cell(unlike=False)),
        UNLIKE: lambda _: Done(TIMED_CELLS, time_s=TIMED_CELLS * seconds_per_cell(unlike=True)),
        EXACT: lambda _: exact(),
    }
    return interleaved(contestants, repetitions, "screening")


def exact() -> Done:
    """Solve stars of exponential service exactly."""
    rng = np.random.default_rng(1)
    cells = list(zip(rng.integers(2, 49, ONE_BY_ONE).tolist(), rng.uniform(0.25, 32, ONE_BY_ONE).tolist(), strict=True))
    begun_s = time.process_time()
    for N, Z_s in cells:
        mean_value_analysis(N, [1.0], Z_s)
    return Done(ONE_BY_ONE, time_s=time.process_time() - begun_s)
