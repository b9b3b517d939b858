"""What approximate mean value analysis misses simulations by, over a drawn grid of stars.

Stars are simulated and compared by region with the equations, the upper bound and, for exponential S, exact mean value
analysis. ERRORS states the errors.
"""

import argparse
import os
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.special import gammaincinv

import specfleet
from bench.harness import Aim, Report, Row, say
from bench.numbers import seed, whole
from experiments.jobs import side_by_side
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from sim.analytic import round_rate_bounds
from sim.approximate import rounds_per_s
from sim.mva import mean_value_analysis

CELLS, SEED, ROUNDS = 240, 2026, 20_000
TOLERATED = 1.25  # times the stated error: another seed draws other cells
MOST_TARGETS = 48
Z_OVER_S = (0.25, 32.0)
VARIABILITIES = (0.0, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
SMALL, LARGE = (1e-4, 0.5, 40), (0.5, 1e-6, 60)  # levels at which quantiles are given: lower half, distance from 1
TOKENS = 300  # of a request, which are 200 rounds


class Error(msgspec.Struct, frozen=True):
    """Relative errors of round rates against simulations: mean, 90th percentile and maximum."""

    mean: float
    p90: float
    worst: float


ERRORS = {
    "S varies little (SCV <= 1)": Error(0.005, 0.015, 0.04),
    "S varies much (SCV > 1)": Error(0.018, 0.044, 0.07),
}
"""Errors by region of `python -m bench screening`: 2 to 48 targets, Z / S from 0.25 to 32, SCV up to 4.

For SCV > 1, up to 3 % is the error of the simulations."""


class Cell(msgspec.Struct, frozen=True):
    """One star with S = 1 s.

    Keys:
        N (targets): Number of targets.
        Z_s: Mean return time.
        scv (ratio): Squared coefficient of variation of S, one of VARIABILITIES.
        return_scv (ratio): The same of Z.
    """

    N: int
    Z_s: float
    scv: float
    return_scv: float

    @property
    def region(self) -> str:
        """The region of the grid that the cell's error counts for."""
        if not self.scv and not self.return_scv:
            return "nothing varies: exact"
        return "S varies much (SCV > 1)" if self.scv > 1 else "S varies little (SCV <= 1)"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    parser.add_argument("--cells", type=whole, default=CELLS, help="number of stars")
    parser.add_argument("--rounds", type=whole, default=ROUNDS, help="rounds of a simulation")
    parser.add_argument("--seed", type=seed, default=SEED, help="seed of the cells and of the simulations")


def study(options: argparse.Namespace) -> Report:
    """Simulate the drawn cells and hold the equations against them."""
    cells = cells_of(options.cells, options.seed)
    say(f"{len(cells)} simulations")
    every = [(cell, options.rounds, options.seed + place) for place, cell in enumerate(cells)]
    rows = list(side_by_side(missed, every, os.cpu_count() or 1))
    regions = by_region(rows)
    aims = [
        Aim(
            f"{row['region']}: {name} error, %",
            row[f"{name}, %"],
            100 * TOLERATED * getattr(ERRORS[row["region"]], name),
        )
        for row in regions
        for name in ("mean", "p90")
        if row["region"] in ERRORS
    ]
    return Report({f"errors of R_q against {len(rows)} simulations": regions}, aims)


def cells_of(count: int, seed: int) -> list[Cell]:
    """Draw so many stars."""
    rng = np.random.default_rng(seed)
    cells = []
    for _ in range(count):
        N = int(np.exp(rng.uniform(np.log(2), np.log(MOST_TARGETS + 1))))
        drawn_s = np.exp(rng.uniform(*np.log(Z_OVER_S), size=N))
        scv, return_scv = rng.choice(VARIABILITIES, size=2).tolist()
        cells.append(Cell(N, float(drawn_s[0]), scv, return_scv))
    return cells


def spread_of(scv: float) -> tuple[dict[str, object], float]:
    """Return a spread of mean 1 with about that squared coefficient of variation, and its exact one.

    The spread has the quantiles of a gamma distribution.
    """
    if not scv:
        return {"spread": "constant"}, 0.0
    if scv == 1:
        return {"spread": "exponential"}, 1.0
    inner = np.concatenate([np.geomspace(*SMALL), 1 - np.geomspace(*LARGE)[1:]])
    levels = np.concatenate([[0.0], inner, [1.0]])
    at = gammaincinv(1 / scv, np.minimum(levels, 1 - LARGE[1] / 10)) * scv
    shares = np.diff(levels)
    at /= float((shares * (at[1:] + at[:-1]) / 2).sum())
    squares = float((shares * (at[1:] ** 2 + at[1:] * at[:-1] + at[:-1] ** 2) / 3).sum())
    return {"spread": "quantiles", "levels": levels.tolist(), "ratios_at": at.tolist()}, squares - 1


def scenario_of(cell: Cell, rounds: int, seed: int) -> Scenario:
    """Return the cell as a scenario with about so many rounds."""
    draft, verify = (spread_of(scv)[0] for scv in (cell.scv, cell.return_scv))
    requests = cell.N * max(2, round(1.5 * rounds / (cell.N * TOKENS)))
    content = {
        "name": "cell",
        "seed": seed,
        "profile": {
            "name": "cell",
            "draft": {"base_s": 1.0, "spread": draft},
            "verify": {"base_s": cell.Z_s, "spread": verify},
            "link": {"latency_s": 0.0},
        },
        "acceptance": {"model": "geometric", "beta": 0.5},
        "drafters": {"depth": 1},
        "verifiers": {"count": cell.N},
        "workload": {"requests": requests, "prompt_tokens": 8, "new_tokens": TOKENS},
    }  # fmt: skip
    return make_scenario(content)


def equations_of(cell: Cell) -> float:
    """Return R_q of a cell by approximate mean value analysis, a second."""
    scv, return_scv = (spread_of(one)[1] for one in (cell.scv, cell.return_scv))
    return float(rounds_per_s(cell.N, 1.0, cell.Z_s, scv, return_scv))


def missed(cell: Cell, rounds: int, seed: int) -> Row:
    """Simulate a cell for about so many rounds; return what the equations miss it by, as shares of the simulation."""
    simulated = specfleet.simulate(scenario_of(cell, rounds, seed)).metrics["rounds_per_s"]
    bound = round_rate_bounds(cell.N, 1.0, cell.Z_s)[1]
    exact = mean_value_analysis(cell.N, [1.0], cell.Z_s).throughput_per_s if cell.scv == 1 else float("nan")
    return {
        "region": cell.region,
        "approximate": abs(equations_of(cell) / simulated.value - 1),
        "bound": abs(bound / simulated.value - 1),
        "exact": abs(exact / simulated.value - 1),
        "half width": (simulated.high - simulated.low) / 2 / simulated.value,
    }


def by_region(rows: Sequence[Row]) -> list[Row]:
    """Return the errors of each region in hundredths, beside those that are stated."""
    found = []
    for region in sorted({row["region"] for row in rows}):
        own = [row for row in rows if row["region"] == region]
        error, stated = error_of([row["approximate"] for row in own]), ERRORS.get(region)
        found.append(
            {
                "region": region, "cells": len(own),
                "mean, %": 100 * error.mean, "p90, %": 100 * error.p90, "worst, %": 100 * error.worst,
                "stated mean, %": 100 * stated.mean if stated else None,
                **{f"{name}, mean %": _mean([row[name] for row in own]) for name in ("bound", "exact", "half width")},
            }
        )  # fmt: skip
    return found


def _mean(shares: Sequence[float]) -> float | None:
    defined = [share for share in shares if not np.isnan(share)]
    return 100 * float(np.mean(defined)) if defined else None


def error_of(shares: Sequence[float]) -> Error:
    """Summarise absolute relative errors."""
    return Error(float(np.mean(shares)), float(np.quantile(shares, 0.9)), float(max(shares)))
