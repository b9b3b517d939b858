"""A shipped scenario as this host can run it, with what predicts that run.

A fleet waits for the times that its scenario states, since one machine cannot hold the models; what passes between its
steps is this host's. A batch decodes the demo pair, and is calibrated on other prompts before and after: a shared host
is faster in one minute than in the next. It is calibrated on all prompts of its group, and its run takes as many of the
other group's as time allows: tokens a round over the first 96 of each differ by 7 %, over all of them by 2 %.
"""

from pathlib import Path

import msgspec

from calibrate.batch_profile import BatchMeasured
from calibrate.batches import QUICK, measure_pass, profiled, record_acceptance
from engine.launch.serve import serve
from engine.node.build import load_target
from experiments.replayed.host import with_overhead
from fleet.chance.signals import SIGNALS_FILE
from fleet.records.run import Run
from fleet.scenario.facts import measured_acceptance
from fleet.scenario.reading import change_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile, write_profile
from sim.run import simulate

REPLAYED = [("drafters.kind", "replayed"), ("verifiers.kind", "replayed")]
PROMPTS = 384  # of the demo pair, in each of its two groups
GRID = msgspec.structs.replace(QUICK, recorded=PROMPTS)


def fleet_here(scenario: Scenario, host: HardwareProfile, seconds: float) -> Scenario:
    """Return a fleet of replayed stations as it is run and predicted here; `host`: what is known of them.

    There are so many of its requests that they take about `seconds`; all where there are faults at stated times.
    """
    here = replayed(scenario, host)
    return here if here.faults else lasting(here, seconds, here.workload.requests)


def run_batch(scenario: Scenario, seconds: float, folder: Path) -> tuple[Scenario, Run]:
    """Run a batch for about `seconds`; return it with the times and the acceptance that it is predicted by.

    `folder` gets these: `profile.json`, and the signals of drafted tokens.
    """
    measured_on = change_scenario(scenario, [("workload.prompts", "demo/calibration")])
    large, measured = load_target(settle(measured_on)), BatchMeasured()
    measure_pass(measured_on, large, 0, measured, GRID)
    accepted = record_acceptance(measured_on, large, folder, GRID.recorded)
    acceptance = measured_acceptance(scenario, str(folder.resolve() / SIGNALS_FILE))
    before = profiled(measured_on, large, measured, accepted)
    here = lasting(msgspec.structs.replace(scenario, profile=before, acceptance=acceptance), seconds, PROMPTS)
    run = serve(here).run
    measure_pass(measured_on, large, 1, measured, GRID)
    profile = profiled(measured_on, large, measured, accepted)
    write_profile(profile, folder / "profile.json")
    return msgspec.structs.replace(here, profile=profile), run


def replayed(scenario: Scenario, host: HardwareProfile) -> Scenario:
    """Return a fleet that waits for its stated times on this host."""
    assert isinstance(scenario.profile, HardwareProfile)
    profile = with_overhead(scenario.profile, host)
    return msgspec.structs.replace(change_scenario(scenario, REPLAYED), profile=profile)


def lasting(scenario: Scenario, seconds: float, most: int) -> Scenario:
    """Return the scenario with as many requests as take about `seconds`: a tenth of its own or more, up to `most`."""
    frame = simulate(scenario).frame()
    whole_s = float(frame.time_s[frame.event == "done"].max())
    requests = scenario.workload.requests * max(seconds / whole_s, 0.1)
    return change_scenario(scenario, [("workload.requests", min(max(round(requests), 1), most))])
