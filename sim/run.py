"""Run a scenario in simulated time."""

from collections.abc import Mapping

import msgspec
from simpy import Environment

from fleet.records.playback import Playback
from fleet.records.run import Run, make_run
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.pace import Pace
from sim.network import Network


def simulate(scenario: Scenario, paces: Mapping[str, Pace] | None = None, playback: Playback | None = None) -> Run:
    """Simulate the scenario to its end and return its records.

    `paces`: how fast the host of each station was over time, by station name, as `pace.paces_of` reads it from a
    measured run; other stations keep the profile's pace. `playback`: a measured run, parts of which are played back.
    Raises InputError where the scenario names no profile or no acceptance model, RuntimeError if the fleet stalls.
    """
    fleet, env = settle(scenario), Environment()
    network = Network(env, fleet, paces, playback)
    network.start()
    env.run()
    unfinished = [s.station.name for s in network.servers if s.station.sessions and s is not network.router]
    if unfinished:
        raise RuntimeError(f"simulation stalled with open sessions at {', '.join(unfinished)}")
    run = make_run(scenario, "sim", network.log, fleet)
    if playback is None:
        return run
    header = msgspec.structs.replace(run.header, played_of=playback.run_digest, played=playback.parts)
    return msgspec.structs.replace(run, header=header)
