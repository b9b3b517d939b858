"""Small fleets of a calibration: they decode calibration prompts, and their records are read like any others.

Each function that ends in `_fleet` returns the scenario of one.
"""

import msgspec
import numpy as np
import pandas as pd

from specfleet.fleet.policies.warm_up import AfterIdle, NoWarmUp
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.lengths import mean_tokens
from specfleet.fleet.scenario.names import DRAFTER
from specfleet.fleet.scenario.scenario import Scenario, SharedDevice, Sharing
from specfleet.fleet.times.durations import step_name
from specfleet.fleet.times.mixed import make_part
from specfleet.fleet.times.step_time import Quantiles, StepTime

SETTLING_STEPS = 5  # of each station at the start of a run; they do not count
SHARED = "shared"  # name of a shared device


class FleetSetup(msgspec.Struct, frozen=True):
    """Common setup of the small fleets of a calibration. `times`: step times by name, as a profile has them."""

    scenario: Scenario
    times: dict[str, StepTime]


def rounds_fleet(setup: FleetSetup, targets: int, verify: StepTime, rounds: int, warm_tokens: int = 0) -> Scenario:
    """Return replayed targets that run for about `rounds` drafts."""
    scenario = setup.scenario
    workload = scenario.workload
    a_request = max(1, int(mean_tokens(workload.new_tokens)) // (scenario.drafters.depth + 1))  # rounds, at least
    requests = max(targets, -(-rounds // a_request))
    warm_up = AfterIdle(0.0, warm_tokens) if warm_tokens else NoWarmUp()
    return msgspec.structs.replace(
        scenario,
        drafters=msgspec.structs.replace(scenario.drafters, warm_up=warm_up),
        verifiers=msgspec.structs.replace(scenario.verifiers, kind="replayed", count=targets, verify=verify),
        workload=msgspec.structs.replace(workload, requests=requests),
    )


def loaded_fleet(setup: FleetSetup, targets: int, drafts: float, rounds: int) -> Scenario:
    """Return targets that load the drafter: they verify for as long as so many of its drafts, give or take a half."""
    scenario = setup.scenario
    draft_s = setup.times["draft"].mean_s(scenario.drafters.depth, mean_tokens(scenario.workload.prompt_tokens))
    verify = StepTime(base_s=drafts * draft_s, spread=Quantiles((0.0, 1.0), (0.5, 1.5)))
    return rounds_fleet(setup, targets, verify, rounds)


def gaps_fleet(setup: FleetSetup, shortest_s: float, longest_s: float, rounds: int) -> Scenario:
    """Return a target that lets the drafter idle before each draft, for gaps spread evenly over the logarithm.

    They lie between the two lengths.

    All lengths alternate in one run, so that a slow phase of the machine does not count as the effect of one gap.
    """
    levels = np.linspace(0, 1, 65)
    gaps_s = np.geomspace(shortest_s, longest_s, len(levels))
    mean_s = float(np.trapezoid(gaps_s, levels))
    verify = StepTime(base_s=mean_s, spread=Quantiles(tuple(levels.tolist()), tuple((gaps_s / mean_s).tolist())))
    return rounds_fleet(setup, 1, verify, rounds)


def sharing_fleet(scenario: Scenario, targets: int, requests: int, sharing: Sharing) -> Scenario:
    """Return real targets that decode `requests` each, on one device with their drafter, shared by that rule."""
    return msgspec.structs.replace(
        scenario,
        name=f"{targets} real targets share a device: {sharing}",
        devices={SHARED: SharedDevice(sharing)},
        drafters=msgspec.structs.replace(scenario.drafters, device=SHARED),
        verifiers=msgspec.structs.replace(scenario.verifiers, count=targets, device=SHARED),
        workload=msgspec.structs.replace(scenario.workload, requests=targets * requests),
    )


def fitted_steps(run: Run, setup: FleetSetup) -> pd.DataFrame:
    """Return the finished steps of a run but for warm-ups, station by station, with times in seconds.

    Columns: station; name; begun_s, ended_s; duration_s on the device; fitted_s by `setup.times`; gap_s, idleness of
    the station before; resolved, whether the step counts.
    """
    rows, shape = run.frame().sort_values(["station", "seq"]), setup.scenario.drafters.shape
    done = rows[(rows.event == "done") & (rows.kind != "warm_up")]
    starts = rows[rows.event == "start"].drop_duplicates(["station", "step"]).set_index(["station", "step"])
    starts = starts.reindex(pd.MultiIndex.from_frame(done[["station", "step"]]))
    names = [step_name(step.station.startswith(DRAFTER), step.kind) for step in done.itertuples()]
    fitted_s = [
        setup.times[name].mean_s(*make_part(step.kind, step.tokens, step.base, shape)[:2])
        for name, step in zip(names, done.itertuples(), strict=True)
    ]
    return pd.DataFrame(
        {
            "station": done.station,
            "name": names,
            "begun_s": starts.time_s.to_numpy(),
            "ended_s": done.time_s,
            "duration_s": done.duration_s,
            "fitted_s": fitted_s,
            "gap_s": starts.idle_gap_s.to_numpy(),
            "resolved": done.groupby("station").cumcount() >= SETTLING_STEPS,
        }
    )


def steps_in(run: Run, setup: FleetSetup, name: str = "draft") -> pd.DataFrame:
    """Return the steps of a name that count, as `fitted_steps` has them, with `ratio`: measured over fitted time."""
    steps = fitted_steps(run, setup)
    steps = steps[steps.resolved & (steps.name == name)]
    return steps.assign(ratio=steps.duration_s / steps.fitted_s)
