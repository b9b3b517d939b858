"""Run a scenario in simulated time."""

from pathlib import Path

import msgspec
from simpy import Environment

from specfleet.fleet.records.metrics.findings import Findings, findings_of
from specfleet.fleet.records.playback import Playback
from specfleet.fleet.records.run import Run, counted, make_header, make_run, writing_run
from specfleet.fleet.scenario.names import SimPath
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.fast.choice import choose_path
from specfleet.sim.network import Network

Records = bool | str | Path | None
RECORDED_TOKENS = 10**6  # up to which a simulation keeps its records unasked: some hundred megabytes


def simulate(scenario: Scenario, playback: Playback | None = None, path: SimPath = "auto") -> Run:
    """Simulate a scenario to its end and return its records.

    - `playback`: a measured run, parts of which replace random draws.
    - `path`: "simpy", "fast" (the compiled loop) or "auto". The records are the same.

    Raises InputError if the scenario names no profile or no acceptance model, or if the path does not support it.
    Raises RuntimeError if the fleet stalls.
    """
    fleet = resolve(scenario)
    if choose_path(fleet, path, playback is not None) == "fast":
        from specfleet.sim.fast.run import simulate_records  # noqa: PLC0415 (it imports numba)

        table = simulate_records(fleet)
        return Run(msgspec.structs.replace(make_header(scenario, fleet, "sim", counted(table)), path="fast"), table)
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


def simulate_frugally(scenario: Scenario, path: SimPath, records: Records) -> tuple[Run, Findings | None]:
    """Simulate a scenario to its end; return its run, and what metrics need of it if that does not keep its records.

    - `records`: whether to keep them; None for those of few tokens. The SimPy path always does. A file takes those of
      more tokens as they come.
    """
    fleet = resolve(scenario)
    few = fleet.workload.requests * fleet.lengths.mean_answer <= RECORDED_TOKENS
    chosen = choose_path(fleet, path)
    if chosen != "fast" or records is True or (few and records is not False):
        return simulate(scenario, path=chosen), None
    from specfleet.sim.fast.run import simulate_findings  # noqa: PLC0415 (it imports numba)

    header = msgspec.structs.replace(make_header(scenario, fleet, "sim", {}), path="fast")
    if not isinstance(records, str | Path):
        return Run(header, None), simulate_findings(fleet)
    with writing_run(Path(records)) as file:
        findings = simulate_findings(fleet, file.take)
        header = file.end(header)
    return Run(header, None, str(records)), findings


def observe(scenario: Scenario, path: SimPath = "auto") -> Findings:
    """Simulate a scenario and return the tables that metrics are computed from.

    The compiled loop makes no records. The metrics are the same; those of long simulations come from sums (see
    `fast/sums.py`). Arguments and errors are those of `simulate`.
    """
    fleet = resolve(scenario)
    if choose_path(fleet, path) != "fast":
        return findings_of(simulate(scenario, path=path))
    from specfleet.sim.fast.run import simulate_findings  # noqa: PLC0415 (it imports numba)

    return simulate_findings(fleet)
