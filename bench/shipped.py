"""Runs every shipped scenario here, replays its log, and compares its simulation with the run.

A fleet runs as replayed stations, which wait for the times that its scenario states; what this host adds is read from
small fleets. A batch decodes the demo pair, and is calibrated before on other prompts.
"""

import argparse
from functools import partial
from pathlib import Path

import specfleet
from bench.harness import Aim, Options, Report, Row, first_rows, run
from bench.replayed import Host, hosts_of, small_fleets
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.times.profile import HardwareProfile

REPLAYED = {"drafters.kind": "replayed", "verifiers.kind": "replayed"}
PROMPTS = 384  # of the demo pair, in each of its two groups
JUDGED = "throughput"
MECHANISM_AIM, PREDICTION_AIM = 2.0, 10.0  # absolute errors in hundredths

OPTIONS: Options = {
    "--only": {"nargs": "*", "choices": list(shipped_files("scenarios")), "help": "these scenarios; else all"},
    "--seconds": {"type": float, "default": 30.0, "help": "about how long each run takes"},
}


def study(options: argparse.Namespace) -> Report:
    """Run all scenarios, or those that are named, and judge each."""
    names = options.only or list(shipped_files("scenarios"))
    fleets = [name for name in names if specfleet.scenario_of(name).drafters.place == "own"]
    small = small_fleets(options.seconds) if fleets else {}
    runs = run({name: partial(specfleet.run, scenario) for name, scenario in small.items()})
    hosts = hosts_of(result for (result,) in runs.values()) if fleets else {}

    def work(name: str) -> Row:
        if name not in fleets:
            return batch_row(name, options.seconds, options.out / name)
        host = hosts[resolve(specfleet.scenario_of(name)).routed]
        return fleet_row(name, options.seconds, host, options.out / name)

    rows = first_rows({name: partial(work, name) for name in names})
    aims = [Aim("scenarios whose log does not replay", sum(not row["log replays"] for row in rows), 0)]
    for error, most in (("mechanism, %", MECHANISM_AIM), ("prediction, %", PREDICTION_AIM)):
        aims += [Aim(f"{row['scenario']}: {error}", abs(row[error]), most) for row in rows]
    return Report({"shipped scenarios as processes, and errors of their simulated throughput": rows}, aims)


def fleet_row(name: str, seconds: float, host: Host, folder: Path) -> Row:
    """Run a fleet of replayed stations and judge it by its stated times and what this host adds."""
    here = lasting(specfleet.scenario_of(name, REPLAYED), seconds)
    assert isinstance(here.profile, HardwareProfile)
    return judged(name, "replayed", specfleet.run(here), host.added_to(here.profile), folder)


def batch_row(name: str, seconds: float, folder: Path) -> Row:
    """Calibrate a batch of the demo pair, run it, and judge it by that profile."""
    profile = specfleet.calibrate(name, quick=True, out=folder / "profile.json")
    here = lasting(specfleet.scenario_of(folder / "profile.toml"), seconds, PROMPTS)
    return judged(name, "demo pair", specfleet.run(here), profile, folder)


def lasting(scenario: specfleet.Scenario, seconds: float, most: int | None = None) -> specfleet.Scenario:
    """Return the scenario with as many requests as take about `seconds`: a tenth of its own or more, up to `most`.

    With faults at stated times it keeps all of them. Left out, `most` is the scenario's own number.
    """
    if scenario.faults:
        return scenario
    whole_s = float(specfleet.simulate(scenario).rows().time_s.max())
    own = scenario.workload.requests
    requests = round(own * max(seconds / whole_s, 0.1))
    return specfleet.scenario_of(scenario, {"workload.requests": min(max(requests, 1), most or own)})


def judged(name: str, stations: str, result: specfleet.Result, profile: HardwareProfile, folder: Path) -> Row:
    """Replay a run's log and hold its prediction against it; keep the run in the folder."""
    result.save(folder / "engine.parquet")
    comparison = specfleet.three_errors(result, profile=profile, seeds=5)
    (row,) = [row for row in comparison.rows if row.quantity == JUDGED]
    assert row.mechanism is not None
    return {
        "scenario": name, "stations": stations, "requests": result.scenario.workload.requests,
        "log replays": not replay(result.run), "tokens/s": row.engine,
        "mechanism, %": 100 * row.mechanism.value, "prediction, %": 100 * row.error,
    }  # fmt: skip
