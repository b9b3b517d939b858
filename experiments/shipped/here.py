"""A shipped scenario as this host can run it, with what predicts that run.

A fleet waits for the times that its scenario states, since one machine cannot hold the models; what passes between its
steps is this host's. A batch decodes the demo pair, and is calibrated on other prompts before.
"""

from pathlib import Path

import msgspec

from calibrate.batches import QUICK, calibrate_batch
from experiments.replayed.host import with_delays
from fleet.chance.signals import SIGNALS_FILE
from fleet.scenario.facts import measured_acceptance
from fleet.scenario.reading import change_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile
from sim.run import simulate

REPLAYED = [("drafters.kind", "replayed"), ("verifiers.kind", "replayed")]


def runnable_here(scenario: Scenario, host: HardwareProfile, seconds: float, folder: Path) -> Scenario:
    """Return the scenario as it is run and predicted here; a batch is measured, and its signals go to `folder`.

    `host`: what is known of its replayed stations. There are so many of the requests that they take about `seconds`;
    all of them where there are faults at stated times.
    """
    here = replayed(scenario, host) if scenario.batch is None else calibrated(scenario, folder)
    return here if here.faults else shortened(here, seconds)


def replayed(scenario: Scenario, host: HardwareProfile) -> Scenario:
    """Return a fleet that waits for its stated times on this host."""
    assert isinstance(scenario.profile, HardwareProfile)
    profile = with_delays(scenario.profile, host)
    return msgspec.structs.replace(change_scenario(scenario, REPLAYED), profile=profile)


def calibrated(scenario: Scenario, folder: Path) -> Scenario:
    """Return a batch with the times and the acceptance that the demo pair has on this host."""
    measured = change_scenario(scenario, [("workload.prompts", "demo/calibration")])
    profile = calibrate_batch(measured, folder, grid=QUICK)
    acceptance = measured_acceptance(scenario, str(folder.resolve() / SIGNALS_FILE))
    return msgspec.structs.replace(scenario, profile=profile, acceptance=acceptance)


def shortened(scenario: Scenario, seconds: float) -> Scenario:
    """Return the scenario with the share of its requests that takes about `seconds`, and no fewer than a tenth."""
    frame = simulate(scenario).frame()
    whole_s = float(frame.time_s[frame.event == "done"].max())
    share = min(max(seconds / whole_s, 0.1), 1.0)
    return change_scenario(scenario, [("workload.requests", max(round(scenario.workload.requests * share), 1))])
