"""Run a scenario in simulated time."""

import msgspec
from simpy import Environment

from fleet.records.metrics.findings import Findings, findings_of, needs_rows
from fleet.records.playback import Playback
from fleet.records.run import Run, make_header, make_run
from fleet.scenario.names import SimPath
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Scenario
from sim.fast.choice import chosen
from sim.network import Network


def simulate(
    scenario: Scenario,
    playback: Playback | None = None,
    path: SimPath = "auto",
) -> Run:
    """Simulate the scenario to its end and return its records.

    `playback`: a measured run, parts of which are played back. `path`: how to simulate; the records are the same.
    Raises InputError where the scenario names no profile or no acceptance model, or the path does not know it,
    RuntimeError if the fleet stalls.
    """
    fleet = resolve(scenario)
    if chosen(fleet, path, playback is not None) == "fast":
        return _compiled(scenario, fleet)
    env = Environment()
    network = Network(env, fleet, playback)
    network.start()
    env.run()
    unfinished = [s.station.name for s in network.servers if s.station.sessions and s is not network.router]
    if unfinished:
        raise RuntimeError(f"simulation stalled with open sessions at {', '.join(unfinished)}")
    run = make_run(scenario, "sim", network.log, fleet)
    header = msgspec.structs.replace(run.header, path="simpy")
    if playback is not None:
        header = msgspec.structs.replace(header, played_of=playback.run_digest, played=playback.parts)
    return msgspec.structs.replace(run, header=header)


def observe(scenario: Scenario, path: SimPath = "auto") -> Findings:
    """Simulate the scenario to its end and return what metrics are computed from, without records where that works.

    That is where the compiled loop applies and no metric needs rows (`needs_rows`); metrics are the same. Arguments and
    errors as `simulate`.
    """
    fleet = resolve(scenario)
    if needs_rows(fleet) or chosen(fleet, path) != "fast":
        return findings_of(simulate(scenario, path=path))
    from sim.fast.run import told_by  # noqa: PLC0415 (it imports numba)

    return told_by(fleet)


def _compiled(scenario: Scenario, fleet: Fleet) -> Run:
    from sim.fast.run import records_of  # noqa: PLC0415 (it imports numba)

    table, rows = records_of(fleet)
    return Run(msgspec.structs.replace(make_header(scenario, fleet, "sim", rows), path="fast"), table)
