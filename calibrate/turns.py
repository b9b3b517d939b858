"""What stations pay for taking turns on a device: small fleets of real targets, their steps against the fits.

A benchmark loop has the caches for itself; a station that waits for its turn finds them full of the others' data.
"""

import numpy as np
import pandas as pd

from calibrate.inservice import SETTLING_ROUNDS, Fleets
from engine.serve import serve
from specfleet.durations import grid_place
from specfleet.fleet import DRAFTER
from specfleet.pace import Pace, paces_of, slowness_at
from specfleet.profile import Turns
from specfleet.records import Run
from specfleet.scenario import Scenario, make_scenario


def measure_turns(fleets: Fleets, targets: int, requests: int, sharing: str) -> Turns:
    """Let `targets` real targets and their drafter decode `requests` each, on one device shared as `sharing` says."""
    run = serve(sharing_fleet(fleets.scenario, targets, requests, sharing), fleets.folder).run
    return turns_in(run, fleets)


def sharing_fleet(scenario: Scenario, targets: int, requests: int, sharing: str) -> Scenario:
    """The scenario with all stations on one device."""
    workload = {name: getattr(scenario.workload, name) for name in ("prompts", "prompt_tokens", "new_tokens")}
    return make_scenario(
        {
            "name": f"{targets} real targets share a device: {sharing}",
            "precision": scenario.precision,
            "devices": {"shared": {"sharing": sharing}},
            "drafters": {"model": scenario.drafters.model, "depth": scenario.drafters.depth, "device": "shared"},
            "verifiers": {"model": scenario.verifiers.model, "count": targets, "device": "shared"},
            "workload": workload | {"requests": targets * requests},
        }
    )


def turns_in(run: Run, fleets: Fleets) -> Turns:
    """Read from a run's records how much each step was slowed, at the reference pace, and how long handovers took."""
    rows = run.frame().sort_values(["station", "seq"])
    paces = paces_of(run, fleets.control_s)
    one_process = run.header.scenario.devices["shared"].sharing == "one-process"
    done = rows[rows.event == "done"]
    done = done[done.groupby("station").cumcount() >= SETTLING_ROUNDS]
    ratios: dict[str, list[float]] = {}
    for station, steps in done.groupby("station"):
        slowness = slowness_at(paces.get(str(station), Pace((1.0,))), steps.time_s.to_numpy())
        for step, slow in zip(steps.itertuples(), slowness, strict=True):
            name = step_name(str(station), str(step.kind))
            fitted_s = fleets.times[name].mean_s(*grid_place(str(step.kind), step.tokens, step.base))
            ratios.setdefault(name, []).append(step.duration_s / fitted_s / slow)
    return Turns(
        {name: float(np.mean(values)) for name, values in ratios.items()},
        mean_handover_s(rows, everyone_waits=one_process),
    )


def step_name(station: str, kind: str) -> str:
    """Name of a step as the profile has it."""
    if kind == "prefill":
        return "draft_prefill" if station == DRAFTER else "verify_prefill"
    return kind


def mean_handover_s(rows: pd.DataFrame, everyone_waits: bool) -> float:
    """Mean time from the end of a step to the start of the next one on the device, if that was asked for before.

    `everyone_waits`: in one process there is nothing but function calls between any two steps, so all of them count.
    """
    key = ["station", "tag", "request", "epoch"]
    asked_s = rows[rows.event.isin(["draft-request", "draft"])].set_index(key).time_s
    starts = rows[(rows.event == "start") & rows.kind.isin(["draft", "verify"])]
    ends_s = np.sort(rows[rows.event == "done"].time_s.to_numpy())
    before = np.searchsorted(ends_s, starts.time_s.to_numpy(), side="right") - 1
    freed_s = ends_s[np.maximum(before, 0)]
    waited = (before >= 0) & (
        everyone_waits | (asked_s.reindex(pd.MultiIndex.from_frame(starts[key])).to_numpy() <= freed_s)
    )
    return float((starts.time_s.to_numpy() - freed_s)[waited].mean()) if waited.any() else 0.0
