"""Builds a profile from measurements: step fits, results of small fleets, and their provenance."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from specfleet.calibration.effects import (
    delays_of,
    factors_in,
    fit_idle,
    link_of,
    overhead_of,
    slowdowns_of,
    with_recoveries,
)
from specfleet.calibration.fits import fit_bandwidth, fits_of, spread_of
from specfleet.calibration.fleets import FleetSetup, steps_in
from specfleet.calibration.measurements import Measurements
from specfleet.calibration.steadiness import passes_differ
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.warm_up import AfterIdle
from specfleet.fleet.records.delays import delayed_count, not_delayed
from specfleet.fleet.records.run import Run
from specfleet.fleet.times.labels import Missing
from specfleet.fleet.times.overhead import Overheads, StationOverheads
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime, StepTime


def profile_from(
    measured: Measurements, setup: FleetSetup, left_out: Mapping[Missing, str] = {}, **facts: Any
) -> HardwareProfile:
    """Return the profile that the measurements give.

    - `setup`: holds the final fits of single steps.
    - `left_out`: what was not measured, with the reasons.
    - `facts`: fields of the profile that are not measured.

    InputError without accepted lengths: targets refused every draft of a sampled fleet.
    """
    if not measured.accepted:
        raise InputError("acceptance: no draft was verified; give models of one tokenizer, or workload.temperature = 0")
    concurrent, in_turn, plain, beside = (measured.of(kind) for kind in ("contended", "turns", "plain", "beside"))
    saturated, with_gaps = measured.of("saturated"), measured.of("with_gaps")
    drafting = [*saturated, *with_gaps]
    fleets = {"own": (drafting, [*concurrent[:1], *plain, *beside])}  # that show overheads of a drafter, of a target
    if in_turn:
        fleets["time_sliced"] = in_turn, in_turn
    delays = {
        sharing: {"drafter": delays_of(of_drafter, drafters=True), "target": delays_of(of_target, drafters=False)}
        for sharing, (of_drafter, of_target) in fleets.items()
    }
    overheads = {
        sharing: StationOverheads(**{station: overhead_of(of_station) for station, of_station in of_sharing.items()})
        for sharing, of_sharing in delays.items()
    }
    drafts = pd.concat([steps_in(run, setup) for run in drafting], ignore_index=True)
    idle = fit_idle(drafts, float(np.median(delays["own"]["drafter"].queued_s or [0.0])))
    ratios = {"draft": drafts.ratio / slowdowns_of(drafts, idle)}
    for name, runs in (("decode", plain), ("verify", concurrent[:1] or beside)):
        ratios |= {name: pd.concat([steps_in(run, setup, name).ratio for run in runs])} if runs else {}
    served = {name: in_service(setup.times[name], of_step) for name, of_step in ratios.items()}
    times: dict[str, Any] = setup.times | served
    pinged = LinkTime(bandwidth_bytes_per_s=fit_bandwidth(*zip(*measured.round_trips_s, strict=True)))
    warmed = [(warm_tokens(run), steps_in(run, setup)) for run in measured.of("warmed")]
    in_use = msgspec.structs.replace(setup, times=times)
    factors = factors_in(concurrent, in_use, idle) if concurrent else (1.0,)
    repeated = {"draft": saturated, "decode": plain}  # once a pass
    return HardwareProfile(
        **facts,
        **times,
        overhead=Overheads(**overheads),
        link=link_of(with_gaps, pinged),
        idle=with_recoveries(idle, warmed),
        contention=tuple(factor / factors[0] for factor in factors),  # a step that runs alone takes its own time
        acceptance=Recorded(setup.scenario.drafters.depth, tuple(map(tuple, measured.accepted))),
        measured=fits_of(measured.points)
        | {
            "delayed_share": delayed_count(ratios.values()) / max(sum(map(len, ratios.values())), 1),
            "passes_differ": passes_differ(
                [[steps_in(run, setup, name).ratio for run in runs] for name, runs in repeated.items()]
            ),
        }
        | ({"alone": factors[0]} if concurrent else {})
        | ({"left_out": dict(left_out)} if left_out else {}),
    )


def warm_tokens(run: Run) -> int:
    """Return the warm-up tokens of a run's drafter."""
    warm_up = run.header.scenario.drafters.warm_up
    return warm_up.tokens if isinstance(warm_up, AfterIdle) else 0


def in_service(time: StepTime, ratios: ArrayLike) -> StepTime:
    """Return the time of a step as it is in service: with the mean and the spread of measured over fitted times.

    Steps that the host delayed do not count. Without any step the time stays.
    """
    kept = not_delayed(ratios)
    if not kept.size:
        return time
    return msgspec.structs.replace(time.slowed(float(kept.mean())), spread=spread_of(kept))
