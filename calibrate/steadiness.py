"""Whether the host was steady while it was measured: how far passes differ, and results that no steady host gives."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from specfleet.fleet.records.delays import not_delayed
from specfleet.fleet.times.labels import UNSTEADY_HOST, unsteady_of
from specfleet.fleet.times.profile import HardwareProfile

UNSTEADY = 0.1  # difference of the same steps between passes from which the host counts as unsteady
DOUBTFUL = 0.25  # difference from which all results of the profile say so
WORST_FIT = 0.25  # median error of a step's fit; quiet hosts are within a few percent
MAX_ALONE = 1.5  # time of a step that runs alone in a concurrent fleet over its own time, which is 1 but for noise
APART = "the same steps took {:.0%} longer in one pass than in another"
REPEAT = "repeat on a quiet host: with --out all else is kept; --accept-unsteady writes a profile that says so"


def passes_differ(series: Sequence[Sequence[ArrayLike]]) -> float:
    """Return how much longer the same steps took in one pass than in another, as a share; the largest of the series.

    - `series`: for each kind of step, measured over fitted times of each pass. Delayed steps do not count.
    """
    means = [[float(not_delayed(ratios).mean()) for ratios in passes if np.size(ratios)] for passes in series]
    return max((max(paces) / min(paces) - 1 for paces in means if paces), default=0.0)


def impossible_fit(fits: Mapping[str, Any]) -> str | None:
    """Return which step's times no smooth law describes, and the error of its fit.

    - `fits`: those of each kind of step, as `measured.steps` of a profile has them.
    """
    worst = max(fits, key=lambda kind: float(fits[kind]["error"]), default=None)
    if worst is None or fits[worst]["error"] <= WORST_FIT:
        return None
    return f"the times of {worst} are {fits[worst]['error']:.0%} off their fit"


def accepted(profile: HardwareProfile, problem: str) -> HardwareProfile:
    """Return a profile in spite of its problem, which it then states: all that rests on it says so."""
    return msgspec.structs.replace(profile, provenance=profile.provenance | {UNSTEADY_HOST: problem})


def unsteady(profile: HardwareProfile) -> str | None:
    """Return one line on a host whose passes differ, or that delays single steps; None for a steady host."""
    share, alone = profile.measured.get("passes_differ", 0.0), profile.measured.get("alone", 1.0)
    if problem := unsteady_of(profile):
        what = problem
    elif share >= UNSTEADY:
        what = APART.format(share)
    elif alone > MAX_ALONE:
        what = f"a step that ran alone took {alone:.1f} times its own time, and contention is relative to that"
    else:
        return None
    return f"unsteady host: {what}; repeat on a quiet host"
