"""From the steps of a batch in service to its profile: fits over rows, delays around steps, acceptance."""

import datetime
from typing import Any

import msgspec
import numpy as np

from calibrate.acceptance import describe_acceptance
from calibrate.fits import fit_batch_step
from calibrate.overheads import delays_of, describe_delays, overhead_of
from engine.decoding.telemetry import host_facts
from fleet.acceptance.models import Recorded
from fleet.records.run import Run
from fleet.scenario.provenance import provenance_of
from fleet.scenario.scenario import Scenario
from fleet.times.overhead import Overheads, StationOverheads
from fleet.times.profile import HardwareProfile

PROFILE_NAMES = {"prefill": "verify_prefill"}  # what a profile calls a batch's steps, where it differs


class TimedSteps(msgspec.Struct):
    """Steps of one kind in service: the variables of their times (`durations.extent`), and those times."""

    extents: list[tuple[int, int, int, int]] = []
    times_s: list[float] = []


class BatchMeasured(msgspec.Struct):
    """Measurements of batches: steps by kind, without the first of a kind in each run, and the runs."""

    served: dict[str, TimedSteps] = {}
    runs: list[Run] = []


def profile_of_batch(
    scenario: Scenario, vocabulary: int, measured: BatchMeasured, accepted: list[list[int]]
) -> HardwareProfile:
    """Return the profile that the measurements give. `accepted`: accepted lengths of the rounds of each request."""
    assert scenario.batch is not None
    fits = {name: fit_batch_step(kind.extents, kind.times_s) for name, kind in measured.served.items()}
    delays = delays_of(measured.runs, drafters=False)
    facts, unread = host_facts()
    times: dict[str, Any] = {PROFILE_NAMES.get(name, name): time for name, (time, _) in fits.items()}
    return HardwareProfile(
        name=f"calibrated-batch-{facts['machine']}",
        **times,
        overhead=Overheads(StationOverheads(target=overhead_of(delays))),
        acceptance=Recorded(scenario.drafters.depth, tuple(map(tuple, accepted))),
        vocabulary=vocabulary,
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
            "overhead": {"own": {"target": describe_delays(delays)}},
            "acceptance": describe_acceptance(accepted, scenario.drafters.depth),
        },
    )


def describe(kind: TimedSteps, error: float) -> dict[str, Any]:
    """Return the numbers that describe a fit's quality."""
    quantiles = np.quantile(kind.times_s, (0.1, 0.5, 0.9)).tolist()
    return {
        "steps": len(kind.times_s),
        "left_out": "the first in each run",
        "quantiles_s": quantiles,
        "mean_absolute_error": error,
    }
