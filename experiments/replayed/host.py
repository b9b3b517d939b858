"""Overheads and links of replayed stations on this host, read from small fleets.

Behind a router they differ: drafters report to it before they send, and there are more of them for the cores.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from calibrate.overheads import delays_of, link_of, overhead_of
from experiments.differences import STATIONS
from experiments.replayed.cases import DRAFT, Host, Hosts, Planned, verify_time
from fleet.records.metrics import measure
from fleet.records.overheads import delays_in
from fleet.records.run import Run
from fleet.scenario.names import DRAFTER
from fleet.scenario.scenario import Scenario
from fleet.times.overhead import Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime
from sim.run import simulate

Floats = NDArray[np.float64]


def host_of(runs: Sequence[Run]) -> Host:
    """Read the records of small fleets of replayed stations."""
    return Host(host_profile(runs), float(np.mean([lateness_s(run) for run in runs])))


def host_profile(runs: Sequence[Run]) -> HardwareProfile:
    """Read the records of small fleets of replayed stations, of which some kept their drafter busy and some did not.

    How late waits end is in the time of the steps (`lateness_s`).
    """
    return HardwareProfile(
        name="replayed stations on this host",
        draft=DRAFT,
        verify=verify_time(1.0),
        overhead=Overheads(StationOverheads(drafter=overhead_of(delays_of(runs, drafters=True)))),
        link=link_of(runs, LinkTime()),
        provenance=dict([STATIONS]),
    )


def with_overhead(profile: HardwareProfile, host: HardwareProfile) -> HardwareProfile:
    """Return a profile of stated times and links with the overheads of replayed stations on their host."""
    return msgspec.structs.replace(profile, overhead=host.overhead)


def known(cell: Planned, hosts: Hosts) -> Planned:
    """Return the cell with the overheads and links of these hosts' stations."""
    host = hosts.of(cell.scenario)
    assert isinstance(cell.scenario.profile, HardwareProfile)
    profile = msgspec.structs.replace(with_overhead(cell.scenario.profile, host.profile), link=host.profile.link)
    scenario = msgspec.structs.replace(cell.scenario, profile=profile)
    return msgspec.structs.replace(cell, scenario=scenario, late_s=host.late_s)


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
    draft = scenario.profile.draft
    later = msgspec.structs.replace(draft, base_s=draft.base_s + late_s)
    return msgspec.structs.replace(scenario, profile=msgspec.structs.replace(scenario.profile, draft=later))


def _drafts_s(run: Run, name: str) -> Floats:
    rows = run.frame()
    drafts = rows[(rows.station == name) & (rows.event == "done") & (rows.kind == "draft")]
    times_s: Floats = drafts.sort_values("seq").duration_s.to_numpy()
    return times_s


def not_drafting(run: Run) -> tuple[float, float, float]:
    """Return the overhead of a busy drafter: mean delay of queued drafts and after drafts, in seconds, and their share.

    The share is of a draft's time; NaN where no draft was queued, and for several drafters.
    """
    if run.header.fleet.drafters.count > 1:
        return float("nan"), float("nan"), float("nan")
    delays = delays_in(run)[DRAFTER]
    if not delays.queued_s:
        return float("nan"), float("nan"), float("nan")
    queued_s, after_s = float(np.mean(delays.queued_s)), float(np.mean(delays.after_s))
    return queued_s, after_s, (queued_s + after_s) / float(_drafts_s(run, DRAFTER).mean())
