"""From the steps of a batch in service to its profile: fits over rows, the time between steps, acceptance."""

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibrate.acceptance import describe_acceptance
from calibrate.fits import fit_batch_step
from engine.decoding.telemetry import host_facts
from fleet.chance.acceptance import Recorded
from fleet.scenario.provenance import provenance_of
from fleet.scenario.scenario import Scenario
from fleet.times.pace import typical_control_s, uninterrupted
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime

PROFILE_NAMES = {"prefill": "verify_prefill"}  # what a profile calls a batch's steps, where it differs
AROUND = 51  # steps: the mean of fewer is noise, and more last longer than the host's pace does


class Served(msgspec.Struct):
    """Steps of one kind as they were served: what their times depend on, those times, and the control beside them."""

    extents: list[tuple[int, int, int, int]] = []
    times_s: list[float] = []
    controls_s: list[float] = []


class Gap(msgspec.Struct, frozen=True):
    """What passed between two steps of a small run: means of rows and seconds, and its typical control (0: none)."""

    rows: float
    between_s: float
    control_s: float


class BatchMeasured(msgspec.Struct):
    """What passes over a batch measured: its steps by kind, and the gaps of all small runs."""

    served: dict[str, Served] = {}
    gaps: list[Gap] = []


def profile_of_batch(
    scenario: Scenario, vocabulary: int, measured: BatchMeasured, accepted: list[list[int]]
) -> HardwareProfile:
    """Return the profile that the measurements give. `accepted`: accepted lengths of the rounds of each request."""
    assert scenario.batch is not None
    controls = np.concatenate([kind.controls_s for kind in measured.served.values()])
    reference_s = typical_control_s(controls) if controls.any() else 0.0
    fits = {name: fit(kind, reference_s) for name, kind in measured.served.items()}
    turnaround_s, turnaround_row_s = fit_gaps(measured.gaps, reference_s)
    facts, unread = host_facts()
    times: dict[str, Any] = {PROFILE_NAMES.get(name, name): time for name, (time, _) in fits.items()}
    return HardwareProfile(
        name=f"calibrated-batch-{facts['machine']}",
        **times,
        turnaround_s=turnaround_s,
        turnaround_row_s=turnaround_row_s,
        acceptance=Recorded(scenario.drafters.depth, tuple(map(tuple, accepted))),
        vocabulary=vocabulary,
        control_s=reference_s,
        provenance=facts
        | {"written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        | provenance_of(scenario)
        | {
            "rule": str(scenario.batch.rule.__struct_config__.tag),
            "largest": str(scenario.batch.rule.size),
            "unread": "; ".join(unread) or "nothing",
        },
        measured={
            "steps": {name: describe(measured.served[name], error) for name, (_, error) in fits.items()},
            "acceptance": describe_acceptance(accepted, scenario.drafters.depth),
        },
    )


def fit(kind: Served, reference_s: float) -> tuple[StepTime, float]:
    """Fit one kind of steps, their times referred to the reference pace by the controls around them."""
    times_s = np.array(kind.times_s)
    if reference_s:
        times_s = times_s * reference_s / controls_around(np.array(kind.controls_s))
    return fit_batch_step(kind.extents, times_s)


def controls_around(controls_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean control of the `AROUND` steps around each, interrupted ones left out as wherever a pace is made."""
    counted = uninterrupted(controls_s)
    around = np.ones(min(AROUND, len(controls_s)))
    sums, counts = np.convolve(np.where(counted, controls_s, 0.0), around, "same"), np.convolve(counted, around, "same")
    means: NDArray[np.float64] = sums / counts
    return means


def fit_gaps(gaps: Sequence[Gap], reference_s: float) -> tuple[float, float]:
    """Fit the time between two steps to a + b (rows - 1), at the reference pace; return a and b in seconds."""
    slowness = np.array([gap.control_s / reference_s if reference_s else 1.0 for gap in gaps])
    times_s = np.array([gap.between_s for gap in gaps]) / slowness
    rows = np.array([gap.rows for gap in gaps])
    design = np.stack([np.ones_like(rows), rows - 1], axis=1)
    a, b = nnls(design / times_s[:, None], np.ones(len(gaps)))[0]
    return float(a), float(b)


def describe(kind: Served, error: float) -> dict[str, Any]:
    """What a reader needs to judge a fit."""
    quantiles = np.quantile(kind.times_s, (0.1, 0.5, 0.9)).tolist()
    return {"steps": len(kind.times_s), "quantiles_s": quantiles, "mean_absolute_error": error}
