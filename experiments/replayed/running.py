"""Runs of replayed fleets: the small ones that show what passes between steps on this host, and cells among them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from engine.launch.serve import serve
from experiments.replayed.cases import CALIBRATED_ON, RATIOS, Host, Hosts, Planned, fleet
from experiments.replayed.host import host_of
from experiments.terminal.printing import number, print_table, progress
from fleet.records.run import Run, write_run
from fleet.scenario.scenario import Scenario
from fleet.times.profile import write_profile

ORDER_SEED, CALIBRATION_SEED = 1, 7


class Effort(msgspec.Struct, frozen=True):
    """How long each fleet runs, in seconds, how often, and how much longer at most where chance decides its waits.

    `calibrations`: how often among them the small fleets run that show what passes between their steps.
    """

    seconds: float = 5.0
    passes: int = 2
    most_longer: int = 16
    calibrations: int = 4


SHORT = Effort(2.0, 1, 1, 1)


def measured_hosts(seconds: float, out: Path) -> Hosts:
    """Run small fleets without and with a router; write what is known of this host's stations by them, and print it."""
    fleets = calibration_fleets(seconds)
    with progress("replayed stations of this host", len(fleets)) as advance:
        runs = []
        for scenario in fleets:
            advance(scenario.name)
            runs.append(serve(scenario).run)
    return hosts_of(runs, out)


def calibration_fleets(seconds: float) -> list[Scenario]:
    """List small fleets with other N and another seed than those that are predicted, without and with a router."""
    return [
        fleet(None, ratio, count, seconds, CALIBRATION_SEED, drafters)
        for drafters, counts in CALIBRATED_ON.items()
        for ratio in RATIOS
        for count in counts
    ]


def hosts_of(runs: Sequence[Run], out: Path, among: str = "") -> Hosts:
    """Read what is known of this host's stations from runs of those fleets, write it, and print it.

    `among`: what they ran among, which begins the names of the files.
    """
    hosts = Hosts(*(host_of([run for run in runs if run.header.fleet.routed == routed]) for routed in (False, True)))
    for kind, host in msgspec.structs.asdict(hosts).items():
        write_profile(host.profile, out / f"{among}{kind}.json")
    print_table(
        hosts.plain.profile.name,
        ("what passes, ms", "without a router", "with one"),
        [
            (what, *(number(1000 * of_host[what]) for of_host in (passing(hosts.plain), passing(hosts.routed))))
            for what in passing(hosts.plain)
        ],
    )
    return hosts


def passing(host: Host) -> dict[str, float]:
    """Name what passes between the steps of a host's stations, in seconds."""
    drafter = host.profile.overhead.own.drafter
    return {
        "link, one way": host.profile.link.latency_s,
        "queued": drafter.queued.mean_s,
        "woken": drafter.woken.mean_s,
        "after": drafter.after.mean_s,
        "end of a draft, late": host.late_s,
    }


def run_among(name: str, planned: Sequence[Planned], effort: Effort, out: Path) -> tuple[list[list[Run]], Hosts]:
    """Run cells and, among them, the fleets that show what this host is like; return the runs of each cell, and it."""
    small = effort.calibrations * calibration_fleets(effort.seconds)
    cells_run = effort.passes * len(planned)
    order = np.random.default_rng(ORDER_SEED).permutation(cells_run + len(small))
    of_small: list[Run] = []
    runs: list[list[Run]] = [[] for _ in planned]
    with progress(name, len(order)) as advance:
        for place in order.tolist():
            cell = place % len(planned)
            scenario = planned[cell].scenario if place < cells_run else small[place - cells_run]
            advance(scenario.name)
            run = serve(scenario).run
            if place < cells_run:
                write_run(run, out / f"{name}-{planned[cell].slug}-{len(runs[cell]) + 1}.parquet")
            (runs[cell] if place < cells_run else of_small).append(run)
    return runs, hosts_of(of_small, out, f"{name}-")
