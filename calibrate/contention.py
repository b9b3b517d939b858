"""How much stations slow each other when they use one device at once: small contended fleets of real targets.

While k steps are active, each advances at 1 / factor(k). A step's work is then the sum of its times at each k, divided
by their factors: linear in 1 / factor, so all steps together give the factors.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibrate.inservice import FleetSetup
from calibrate.turns import fitted_steps
from fleet.records.run import Run
from fleet.times.effects import Turns

Floats = NDArray[np.float64]

FEWEST = 20  # steps that must have seen k active, for a factor of its own


def factors_in(runs: Sequence[Run], setup: FleetSetup, turns: Sequence[Turns]) -> tuple[float, ...]:
    """Read factor(k) from the records of contended fleets, whose k-th one pays `turns[k-1]`; it never falls with k.

    Raw times are read, not times at the host's reference pace: the control computation would feel the contention too.
    """
    works_s, times_s = [], []
    for run, paid in zip(runs, turns, strict=True):
        steps = fitted_steps(run, setup)
        works_s.append((steps.fitted_s * [paid.slowdowns.get(name, 1.0) for name in steps.name])[steps.settled])
        times_s.append(time_by_active(steps, len(turns))[steps.settled])
    work_s, time_s = np.concatenate(works_s), np.concatenate(times_s)  # (steps,), (steps, most active)
    seen = (time_s > 0).sum(axis=0) >= FEWEST
    rates = nnls(time_s[:, seen] / work_s[:, None], np.ones(len(work_s)))[0]
    factors = np.ones(len(seen))
    factors[seen] = np.divide(1.0, rates, out=np.ones_like(rates), where=rates > 0)  # 0: unknown
    return tuple(np.maximum.accumulate(factors).tolist())


def time_by_active(steps: pd.DataFrame, most: int) -> Floats:
    """For each step, how long 1, 2, ... `most` steps were active while it ran; shape (steps, most)."""
    begun_s, ended_s = steps.begun_s.to_numpy(), steps.ended_s.to_numpy()
    bounds_s = np.sort(np.concatenate([begun_s, ended_s]))
    active = np.searchsorted(np.sort(begun_s), bounds_s, side="right") - np.searchsorted(
        np.sort(ended_s), bounds_s, side="right"
    )  # from each bound to the next
    spans_s = np.diff(bounds_s, append=bounds_s[-1])
    columns = []
    for count in range(1, most + 1):
        counted = (active == count) if count < most else (active >= count)
        until_s = np.concatenate([[0.0], np.cumsum(spans_s * counted)])  # time with `count` active before each bound
        columns.append(until_s[np.searchsorted(bounds_s, ended_s)] - until_s[np.searchsorted(bounds_s, begun_s)])
    return np.stack(columns, axis=1)
