"""What stations pay for taking turns on a device: small fleets of real targets, their steps against the fits.

A benchmark loop has the caches for itself; a station that waits for its turn finds them full of the others' data.
"""

from typing import get_args

import msgspec
import numpy as np
import pandas as pd

from calibrate.between import between_steps, link_of, mean_s
from calibrate.inservice import SETTLING_ROUNDS, FleetSetup
from engine.launch.serve import serve
from fleet.records.paces import paces_of
from fleet.records.run import Run
from fleet.scenario.names import DRAFTER
from fleet.scenario.scenario import Device, Scenario, Sharing
from fleet.times.durations import grid_place, step_name
from fleet.times.effects import IdleEffect, SlowedStep, Turns
from fleet.times.pace import Pace, slowness_at

SHARED = "shared"  # name of their device


def run_sharing(setup: FleetSetup, targets: int, requests: int, sharing: Sharing) -> Run:
    """Let `targets` real targets and their drafter decode `requests` each, on one device shared by rule `sharing`."""
    return serve(sharing_fleet(setup.scenario, targets, requests, sharing), setup.folder).run


def run_plain(setup: FleetSetup, requests: int) -> Run:
    """Let one real target decode `requests` by itself, on a device of its own."""
    scenario = setup.scenario
    plain = msgspec.structs.replace(
        scenario,
        drafters=msgspec.structs.replace(scenario.drafters, count=0),
        workload=msgspec.structs.replace(scenario.workload, requests=requests),
    )
    return serve(plain, setup.folder).run


def sharing_fleet(scenario: Scenario, targets: int, requests: int, sharing: Sharing) -> Scenario:
    """The scenario with all stations on one device."""
    drafters = msgspec.structs.replace(scenario.drafters, device=SHARED)
    return msgspec.structs.replace(
        scenario,
        name=f"{targets} real targets share a device: {sharing}",
        devices={SHARED: Device(sharing)},
        drafters=drafters,
        verifiers=msgspec.structs.replace(scenario.verifiers, count=targets, device=SHARED),
        workload=msgspec.structs.replace(scenario.workload, requests=targets * requests),
    )


def turns_in(run: Run, setup: FleetSetup, idle: IdleEffect) -> Turns:
    """Read from a run's records how much each step was slowed, at the reference pace, and what passed around steps."""
    steps, paces = fitted_steps(run, setup).query("settled"), paces_of(run, setup.control_s)
    slowness = np.concatenate(
        [
            slowness_at(paces.get(str(station), Pace((1.0,))), of_station.ended_s.to_numpy())
            for station, of_station in steps.groupby("station", sort=False)
        ]
    )
    ratios = steps.duration_s / steps.fitted_s / slowness
    one_process = run.header.fleet.devices[SHARED].sharing == "one-process"
    means = ratios.groupby(steps.name).mean()
    slowdowns = {name: float(means[name]) for name in get_args(SlowedStep) if name in means}
    between = between_steps(run, setup.control_s, idle, everyone_waits=one_process)
    return Turns(
        slowdowns,
        handover_s=mean_s(between.handovers_s, fewest=1) or 0.0,
        wake_up_s=None if one_process else mean_s(between.wake_ups_s),
        dispatch_s=mean_s(between.dispatches_s),
        link=None if one_process else link_of(between.ways_s),
    )


def fitted_steps(run: Run, setup: FleetSetup) -> pd.DataFrame:
    """Return the finished steps, station by station: name, begun_s, ended_s, duration_s, and fitted_s by the fits.

    `settled` marks those that count: all but the first few of a station.
    """
    rows, shape = run.frame().sort_values(["station", "seq"]), setup.scenario.drafters.shape
    starts = rows[rows.event == "start"].set_index(["station", "step"]).time_s
    done = rows[rows.event == "done"]
    names = [step_name(step.station == DRAFTER, step.kind) for step in done.itertuples()]
    fitted_s = [
        setup.times[name].mean_s(
            *grid_place(step.kind, shape.nodes(step.tokens) if step.kind == "verify" else step.tokens, step.base)
        )
        for name, step in zip(names, done.itertuples(), strict=True)
    ]
    return pd.DataFrame(
        {
            "station": done.station,
            "name": names,
            "begun_s": starts.reindex(pd.MultiIndex.from_frame(done[["station", "step"]])).to_numpy(),
            "ended_s": done.time_s,
            "duration_s": done.duration_s,
            "fitted_s": fitted_s,
            "settled": done.groupby("station").cumcount() >= SETTLING_ROUNDS,
        }
    )
