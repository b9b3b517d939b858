"""Cells of the grid: stars of like and unlike targets whose drafts and returns vary more or less, drawn by a seed."""

import msgspec
import numpy as np
from scipy.special import gammaincinv

from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario

MOST_TARGETS, MOST_UNLIKE = 48, 16
Z_OVER_S = (0.25, 32.0)
VARIABILITIES = (0.0, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
SMALL, LARGE = (1e-4, 0.5, 40), (0.5, 1e-6, 60)  # levels at which quantiles are given: lower half, distance from 1
ROUNDS = 20_000
TOKENS = 300  # of a request, which are 200 rounds


class Cell(msgspec.Struct, frozen=True):
    """One star; S is 1 s.

    Keys:
        Z_s: Mean return time of each target.
        scv (ratio): Squared coefficient of variation of S, one of VARIABILITIES.
        return_scv (ratio): The same of Z.
        unlike: Whether the targets differ.
    """

    Z_s: tuple[float, ...]
    scv: float
    return_scv: float
    unlike: bool = False

    @property
    def region(self) -> str:
        """The region of the grid whose error the cell counts to."""
        much = self.scv > 1
        if self.unlike:
            return "unlike targets, SCV of S > 1" if much else "unlike targets, SCV of S <= 1"
        if not self.scv and not self.return_scv:
            return "nothing varies: exact"
        return "S varies much (SCV > 1)" if much else "S varies little (SCV <= 1)"


def cells_of(like: int, unlike: int, seed: int) -> list[Cell]:
    """Draw so many stars of like and of unlike targets."""
    rng = np.random.default_rng(seed)
    cells = []
    for number in range(like + unlike):
        is_unlike = number >= like
        most = MOST_UNLIKE if is_unlike else MOST_TARGETS
        N = int(np.exp(rng.uniform(np.log(2), np.log(most + 1))))
        drawn_s = np.exp(rng.uniform(*np.log(Z_OVER_S), size=N))
        scv, return_scv = rng.choice(VARIABILITIES, size=2).tolist()
        Z_s = tuple(drawn_s.tolist()) if is_unlike else (float(drawn_s[0]),) * N
        cells.append(Cell(Z_s, scv, return_scv, is_unlike))
    return cells


def spread_of(scv: float) -> tuple[dict[str, object], float]:
    """Return a spread of mean 1, gamma's quantiles, with about that squared coefficient of variation; the exact one."""
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
    N = len(cell.Z_s)
    draft, verify = (spread_of(scv)[0] for scv in (cell.scv, cell.return_scv))
    tiers = [{"first": place, "verify": {"base_s": Z_s, "spread": verify}}
             for place, Z_s in enumerate(cell.Z_s, start=1)]  # fmt: skip
    requests = N * max(2, round(1.5 * rounds / (N * TOKENS)))
    content = {
        "name": "cell",
        "seed": seed,
        "profile": {
            "name": "cell",
            "draft": {"base_s": 1.0, "spread": draft},
            "verify": {"base_s": cell.Z_s[0], "spread": verify},
            "link": {"latency_s": 0.0},
        },
        "acceptance": {"model": "geometric", "beta": 0.5},
        "drafters": {"depth": 1},
        "verifiers": {"count": N} | ({"tiers": tiers} if cell.unlike else {}),
        "workload": {"requests": requests, "prompt_tokens": 8, "new_tokens": TOKENS},
    }  # fmt: skip
    return make_scenario(content)
