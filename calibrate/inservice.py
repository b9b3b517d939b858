"""What only a running fleet shows: the drafter's turnaround, the link under way, and how drafts slow down after a gap.

Small fleets of replayed targets run on calibration prompts; their records are read like any others.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.core_waits import before_starts
from engine.launch.serve import serve
from fleet.policies.warm_up import AfterIdle, NoWarmUp
from fleet.records.paces import paces_of
from fleet.records.playback import playback_of
from fleet.records.run import Run
from fleet.scenario.names import DRAFTER
from fleet.scenario.scenario import Scenario, mean_tokens
from fleet.times.pace import Pace, slowness_at
from fleet.times.step_time import Quantiles, StepTime

Floats = NDArray[np.float64]

SETTLING_ROUNDS = 5  # at the start of a run, left out
SATURATED_TARGETS = 6
TURNED = 0.99  # the share of turnarounds that are over by then
INTERRUPTED = 3.0  # times the median: what takes longer met another process


class Returns(msgspec.Struct, frozen=True):
    """Ways from a drafter to a target and back, each an array (returns,), in seconds.

    `time_s`: end of a draft to the arrival of the next request of the same session, without the verification and
    without waits for cores, as if the host had kept its reference pace. `gap_before_s`: idleness before that draft;
    `asked_after_s`: how long the drafter had been idle when the request arrived, 0 while it worked; `followed`: whether
    a next draft was waiting at once.
    """

    time_s: Floats
    gap_before_s: Floats
    asked_after_s: Floats
    followed: NDArray[np.bool_]


class Rounds(msgspec.Struct, frozen=True):
    """One fleet's drafting rounds at steady state, each an array (rounds,), in seconds.

    `draft_s`: draft steps, and `begin_s`: when they began. `fitted_s`: by the step fit. `slowness`: the
    host's pace then, a factor without unit. `gap_s`: idleness before them. `busy_s`: (steps, 2) begin and end of all
    steps of the drafter, in order.

    Without waits for a core, and as if the host had kept its reference pace, `wake_up_s`: arrival of a request at the
    idle drafter to the start of its draft, and `woken_after_s`: how long it had been idle; `turnaround_s`: end of a
    draft to the start of the next where one was waiting; `dispatch_s`: start of a draft to its end, without the step's
    own time.
    """

    draft_s: Floats
    fitted_s: Floats
    slowness: Floats
    gap_s: Floats
    returns: Returns
    dispatch_s: Floats
    wake_up_s: Floats
    woken_after_s: Floats
    turnaround_s: Floats
    begin_s: Floats
    busy_s: Floats

    @property
    def paced_s(self) -> Floats:
        """Draft times as if the host had kept its reference pace."""
        return self.draft_s / self.slowness

    @property
    def ratios(self) -> Floats:
        """Draft times at the reference pace over the fitted ones, without unit."""
        return self.paced_s / self.fitted_s


class FleetSetup(msgspec.Struct, frozen=True):
    """What the small fleets of a calibration share: the scenario, step fits and the reference control.

    `times`: the fits by name, as a profile has them. `folder`: where decoded continuations are kept.
    """

    scenario: Scenario
    times: dict[str, StepTime]
    control_s: float
    folder: Path


def run_rounds(setup: FleetSetup, targets: int, verify: StepTime, rounds: int, warm_tokens: int = 0) -> Run:
    """Run a fleet of replayed targets for about `rounds` drafts."""
    scenario = setup.scenario
    workload = scenario.workload
    a_request = max(1, int(mean_tokens(workload.new_tokens)) // (scenario.drafters.depth + 1))  # rounds, at least
    requests = max(targets, -(-rounds // a_request))
    warm_up = AfterIdle(0.0, warm_tokens) if warm_tokens else NoWarmUp()
    return serve(
        msgspec.structs.replace(
            scenario,
            drafters=msgspec.structs.replace(scenario.drafters, warm_up=warm_up),
            verifiers=msgspec.structs.replace(scenario.verifiers, kind="replayed", count=targets, verify=verify),
            workload=msgspec.structs.replace(workload, requests=requests),
        ),
        setup.folder,
    ).run


def rounds_in(run: Run, draft: StepTime, control_s: float, name: str = DRAFTER) -> Rounds:
    """Read the rounds of a drafter from the records of a fleet; a return is one where the next round is its, too."""
    playback = playback_of(run)
    ways_waited_s = {sent[1:]: times_s[0] for sent, times_s in playback.ways_waited_s.items() if times_s}
    rows, pace = run.frame(), paces_of(run, control_s).get(name, Pace((1.0,)))
    drafter = rows[rows.station == name].sort_values("seq")
    steps = drafter[drafter.event.isin(["start", "done"])]
    starts = steps[steps.event == "start"].set_index("step")
    dones = steps[steps.event == "done"].set_index("step")
    drafts = dones[dones.kind == "draft"].iloc[SETTLING_ROUNDS:]
    fitted_s = np.array([draft.mean_s(row.tokens, row.base) for row in drafts.itertuples()])

    requests = drafter[drafter.event == "draft-request"].set_index(["tag", "request", "epoch"]).time_s
    following = pd.MultiIndex.from_arrays([drafts.tag, drafts.request, drafts.epoch + 1])
    arrivals_s = requests.reindex(following).to_numpy()
    verifications = rows[(rows.event == "done") & (rows.kind == "verify")].set_index(["tag", "request", "epoch"])
    verify_s = verifications.duration_s.reindex(
        pd.MultiIndex.from_arrays([drafts.tag, drafts.request, drafts.epoch])
    ).to_numpy()
    waited_s = [
        ways_waited_s.get(("Draft", row.tag, row.request, row.epoch), 0.0)
        + ways_waited_s.get(("DraftRequest", row.tag, row.request, row.epoch + 1), 0.0)
        for row in drafts.itertuples()
    ]
    return_s = arrivals_s - drafts.time_s.to_numpy() - verify_s - np.array(waited_s)
    begin_s = starts.time_s.reindex(drafts.index).to_numpy()
    dispatch_s = drafts.time_s.to_numpy() - begin_s - drafts.duration_s.to_numpy()

    following_steps = starts.reindex(drafts.index + 1)
    begun_s = following_steps.time_s.to_numpy()
    asked_s = requests.reindex(pd.MultiIndex.from_frame(following_steps[["tag", "request", "epoch"]])).to_numpy()
    queued = asked_s <= drafts.time_s.to_numpy()
    next_steps = pd.MultiIndex.from_product([[name], drafts.index + 1])
    core_wait_s = before_starts(run, playback).reindex(next_steps).to_numpy()
    turned_s = begun_s - drafts.time_s.to_numpy()
    turning_s = longest_turnaround_s(turned_s[queued]) if queued.any() else 0.0  # who comes meanwhile wakes nobody
    alone = asked_s > drafts.time_s.to_numpy() + turning_s
    busy_s = np.stack([starts.time_s.reindex(dones.index), dones.time_s], axis=1)
    known = ~np.isnan(return_s)
    slowness = slowness_at(pace, drafts.time_s.to_numpy())
    return Rounds(
        draft_s=drafts.duration_s.to_numpy(),
        fitted_s=fitted_s,
        slowness=slowness,
        gap_s=starts.idle_gap_s.reindex(drafts.index).to_numpy(),
        returns=Returns(
            (return_s / slowness)[known],
            starts.idle_gap_s.reindex(drafts.index).to_numpy()[known],
            idle_s(arrivals_s[known], busy_s),
            queued[known],
        ),
        dispatch_s=np.maximum(dispatch_s, 0.0) / slowness,
        wake_up_s=(np.maximum(begun_s - asked_s - core_wait_s, 0.0) / slowness)[alone],
        woken_after_s=(asked_s - drafts.time_s.to_numpy())[alone],
        turnaround_s=(np.maximum(turned_s - core_wait_s, 0.0) / slowness)[queued],
        begin_s=begin_s,
        busy_s=busy_s,
    )


def longest_turnaround_s(turned_s: Floats) -> float:
    """Return how long a drafter may turn around; single ones that were interrupted take longer."""
    return float(min(np.quantile(turned_s, TURNED), INTERRUPTED * np.median(turned_s)))


def idle_s(times_s: Floats, busy_s: Floats) -> Floats:
    """Return for how many seconds nothing had run at some times; 0 within the spans (steps, 2) of what ran."""
    before = np.maximum(np.searchsorted(busy_s[:, 0], times_s, side="right") - 1, 0)
    idle: Floats = np.maximum(times_s - busy_s[before, 1], 0.0)
    return idle


def run_saturated(setup: FleetSetup, rounds: int) -> Run:
    """Keep the drafter busy without a pause: many targets that verify for one to three of its drafts.

    Targets that answered at once would make its drafts 2 or 3 % faster: their process has less to wake up for.
    """
    return run_rounds(setup, SATURATED_TARGETS, for_drafts(setup, 2), rounds)


def run_half_loaded(setup: FleetSetup, targets: int, rounds: int) -> Run:
    """Load the drafter in part, irregularly: a few targets that verify for two to six of its drafts."""
    return run_rounds(setup, targets, for_drafts(setup, 4), rounds)


def for_drafts(setup: FleetSetup, drafts: float) -> StepTime:
    """A verification that takes as long as so many drafts, give or take a half."""
    draft_s = setup.times["draft"].mean_s(
        setup.scenario.drafters.depth, mean_tokens(setup.scenario.workload.prompt_tokens)
    )
    return StepTime(base_s=drafts * draft_s, spread=Quantiles((0.0, 1.0), (0.5, 1.5)))


def run_over_gaps(setup: FleetSetup, shortest_s: float, longest_s: float, rounds: int) -> Run:
    """Let the drafter idle before each draft, for gaps spread evenly over the logarithm between two lengths.

    All lengths alternate in one run, so that a machine that is slow for a while is not taken for the effect of one gap.
    """
    levels = np.linspace(0, 1, 65)
    gaps_s = np.geomspace(shortest_s, longest_s, len(levels))
    mean_s = float(np.trapezoid(gaps_s, levels))
    verify = StepTime(base_s=mean_s, spread=Quantiles(tuple(levels.tolist()), tuple((gaps_s / mean_s).tolist())))
    return run_rounds(setup, 1, verify, rounds)


def run_after_gap(setup: FleetSetup, gap_s: float, rounds: int, warm_tokens: int) -> Run:
    """Let the drafter idle for about `gap_s` before each draft, and run warm-up tokens first."""
    return run_rounds(setup, 1, StepTime(base_s=gap_s), rounds, warm_tokens)


def spread_numbers(times_s: Sequence[float] | Floats) -> dict[str, float]:
    """Mean and the tenth and ninetieth percentile of times, in seconds."""
    return {
        "mean_s": float(np.mean(times_s)),
        "p10_s": float(np.quantile(times_s, 0.1)),
        "p90_s": float(np.quantile(times_s, 0.9)),
    }
