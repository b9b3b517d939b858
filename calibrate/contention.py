"""How much stations slow each other when they use one device at once: small contended fleets of real targets.

While k steps are active, each advances at 1 / factor(k). A step's work is then the sum of its times at each k, divided
by their factors: linear in 1 / factor, so all steps together give the factors.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specfleet.calibration.fits import Floats, nonnegative
from specfleet.calibration.fleets import FleetSetup, fitted_steps
from specfleet.calibration.idle import slowdowns_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.times.effects import IdleEffect

MIN_STEPS = 20  # steps with k active that a factor of its own needs


def factors_in(runs: Sequence[Run], setup: FleetSetup, idle: IdleEffect) -> tuple[float, ...]:
    """Return factor(k) for k = 1, 2, ... from fleets of 1, 2, ... targets that run concurrently; it never falls.

    `idle`: what idleness adds to the work of drafts.
    """
    works_s, times_s = [], []
    for run in runs:
        steps = fitted_steps(run, setup)
        slowdowns = np.where(steps.name == "draft", slowdowns_of(steps, idle), 1.0)
        works_s.append((steps.fitted_s * slowdowns)[steps.resolved])
        times_s.append(time_by_active(steps, len(runs))[steps.resolved])
    work_s, time_s = np.concatenate(works_s), np.concatenate(times_s)  # (steps,), (steps, most active)
    frequent = (time_s > 0).sum(axis=0) >= MIN_STEPS
    rates = nonnegative(time_s[:, frequent], work_s, work_s)
    factors = np.ones(len(frequent))
    factors[frequent] = np.divide(1.0, rates, out=np.ones_like(rates), where=rates > 0)  # 0: unknown
    return tuple(np.maximum.accumulate(factors).tolist())


def time_by_active(steps: pd.DataFrame, most: int) -> Floats:
    """Return for each step how long 1, 2, ... `most` steps were active while it ran; shape (steps, most)."""
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
