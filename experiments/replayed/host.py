"""What passes between the steps of replayed stations on this host: their links, turnarounds, wake-ups, dispatch.

Behind a router it is something else: drafters report to it before they send, and there are more of them for the cores.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibrate.core_waits import core_waits_in
from calibrate.fits import spread_of
from calibrate.inservice import Rounds, rounds_in
from calibrate.under_way import links_under_way
from experiments.differences import STATIONS
from experiments.replayed.cases import DRAFT, Host, Hosts, Planned, verify_time
from fleet.records.metrics import measure
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario
from fleet.times.effects import NEVER_IDLE
from fleet.times.profile import HardwareProfile
from sim.run import simulate

Floats = NDArray[np.float64]


def host_of(runs: Sequence[Run]) -> Host:
    """Read the records of small fleets of replayed stations."""
    rates = [rounds_per_s(run) for run in runs]
    lates_s = [lateness_s(run) for run in runs]
    (late_s, late_s_a_rate), _ = nnls(np.column_stack([np.ones(len(runs)), rates]), np.array(lates_s))
    return Host(host_profile(runs), float(late_s), float(late_s_a_rate))


def host_profile(runs: Sequence[Run]) -> HardwareProfile:
    """Read the records of small fleets of replayed stations, of which some kept their drafter busy and some did not.

    By how much waits end late is no delay of it: that is in the time of the steps (`lateness_s`).
    """
    rounds = [rounds_in(run, DRAFT, 0.0, name) for run in runs for name in run.header.fleet.drafter_names]

    def every(name: str) -> Floats:
        return np.concatenate([getattr(of_run, name) for of_run in rounds])

    turnarounds_s, wake_ups_s, dispatches_s = every("turnaround_s"), every("wake_up_s"), every("dispatch_s")
    link, busy_link = links_under_way([of_run.returns for of_run in rounds], NEVER_IDLE)
    return HardwareProfile(
        name="replayed stations on this host",
        draft=DRAFT,
        verify=verify_time(1.0),
        turnaround_s=float(turnarounds_s.mean()),
        wake_up_s=float(wake_ups_s.mean()),
        dispatch_s=float(dispatches_s.mean()),
        delay_spread=spread_of(np.concatenate([times / times.mean() for times in (turnarounds_s, wake_ups_s)])),
        link=link,
        busy_link=busy_link,
        core_waits=core_waits_in(runs),
        provenance=dict([STATIONS]),
    )


def with_delays(profile: HardwareProfile, host: HardwareProfile) -> HardwareProfile:
    """Return a profile of stated times with what passes between the steps of replayed stations on their host.

    Its links stay those that are stated, and held back.
    """
    return msgspec.structs.replace(
        profile,
        turnaround_s=host.turnaround_s,
        wake_up_s=host.wake_up_s,
        dispatch_s=host.dispatch_s,
        delay_spread=host.delay_spread,
        core_waits=host.core_waits,
    )


def known(cell: Planned, hosts: Hosts) -> Planned:
    """Return the cell with what these hosts' stations have between its steps, its links included."""
    host = hosts.of(cell.scenario)
    assert isinstance(cell.scenario.profile, HardwareProfile)
    profile = msgspec.structs.replace(
        with_delays(cell.scenario.profile, host.profile), link=host.profile.link, busy_link=host.profile.busy_link
    )
    scenario = msgspec.structs.replace(cell.scenario, profile=profile)
    return msgspec.structs.replace(cell, scenario=scenario, late_s=host.late_at(rounds_per_s(simulate(scenario))))


def rounds_per_s(run: Run) -> float:
    """Return the rounds a second of all targets."""
    return measure(run)["rounds_per_s"].value


def lateness_s(run: Run) -> float:
    """Return by how much drafts ended later than was drawn, in seconds: a wait ends when its thread has a core.

    A run draws the numbers that its simulation draws, in the same order.
    """
    again, lates_s = simulate(run.header.scenario), []
    for name in run.header.fleet.drafter_names:
        waited_s, drawn_s = (_drafts_s(of_world, name) for of_world in (run, again))
        both = min(len(waited_s), len(drawn_s))
        lates_s.append(waited_s[:both] - drawn_s[:both])
    return float(np.maximum(np.concatenate(lates_s), 0.0).mean())


def later(scenario: Scenario, late_s: float) -> Scenario:
    """Return the scenario with drafts that end late, for a prediction of its steps, too."""
    assert isinstance(scenario.profile, HardwareProfile)
    profile = msgspec.structs.replace(scenario.profile, dispatch_s=scenario.profile.dispatch_s + late_s)
    return msgspec.structs.replace(scenario, profile=profile)


def _drafts_s(run: Run, name: str) -> Floats:
    rows = run.frame()
    drafts = rows[(rows.station == name) & (rows.event == "done") & (rows.kind == "draft")]
    times_s: Floats = drafts.sort_values("seq").duration_s.to_numpy()
    return times_s


def not_drafting(run: Run) -> tuple[float, float, float]:
    """Return what a busy drafter's worker does beside its drafts: turnaround and dispatch, in seconds, and their share.

    The share is of a draft's time; NaN where no draft followed another at once, and for several drafters.
    """
    if run.header.fleet.drafters.count > 1:
        return float("nan"), float("nan"), float("nan")
    rounds: Rounds = rounds_in(run, DRAFT, control_s=0.0)
    if not len(rounds.turnaround_s):
        return float("nan"), float("nan"), float("nan")
    turnaround_s, dispatch_s = float(rounds.turnaround_s.mean()), float(rounds.dispatch_s.mean())
    return turnaround_s, dispatch_s, (turnaround_s + dispatch_s) / float(rounds.draft_s.mean())
