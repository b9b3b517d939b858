"""Whether the host was steady while it was measured: how far passes differ, and results that no steady host gives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fleet.records.delayed import not_delayed
from fleet.times.profile import STEPS, HardwareProfile

UNSTEADY = 0.1  # difference of the same steps between passes from which the host counts as unsteady
WORST_FIT = 0.25  # median error of a step's fit; quiet hosts are within a few percent
MOST_ALONE = 1.5  # slowdown of a step that runs alone, which is 1 but for noise


def passes_differ(series: Sequence[Sequence[ArrayLike]]) -> float:
    """Return how much longer the same steps took in one pass than in another, as a share; the largest of the series.

    - `series`: for each kind of step, measured over fitted times of each pass. Delayed steps do not count.
    """
    means = [[float(not_delayed(ratios).mean()) for ratios in passes if np.size(ratios)] for passes in series]
    return max((max(each) / min(each) - 1 for each in means if each), default=0.0)


def impossible_contention(profile: HardwareProfile) -> str | None:
    """Return what is wrong with the measured contention: a step that runs alone cannot be slowed by others."""
    alone = profile.contention[0]
    return f"a step that runs alone took {alone:.1f} times its own time" if alone > MOST_ALONE else None


def impossible_fit(profile: HardwareProfile) -> str | None:
    """Return which step's times no smooth law describes, and how far the fit misses them."""
    errors = {name: fit_error(profile, name) for name in STEPS if name in profile.measured}
    worst = max(errors, key=errors.__getitem__, default=None)
    if worst is None or errors[worst] <= WORST_FIT:
        return None
    return f"the times of {worst} are {errors[worst]:.0%} off their fit"


def fit_error(profile: HardwareProfile, name: str) -> float:
    """Return the median relative error of a step's fit over its measured grid."""
    return float(np.median([abs(row["fitted_s"] / row["quantiles_s"][1] - 1) for row in profile.measured[name]]))


def unsteady(profile: HardwareProfile) -> str | None:
    """Return one line on a host whose passes differ; None for a steady host, or where nothing was measured."""
    share = profile.measured.get("passes_differ", 0.0)
    if share < UNSTEADY:
        return None
    return f"unsteady host: the same steps took {share:.0%} longer in one pass than in another; repeat on a quiet host"
