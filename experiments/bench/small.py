"""What every user waits for: the help, a small simulation from the command line, and the metrics of a small run."""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL

import numpy as np

from experiments.terminal.exits import run_child
from experiments.terminal.printing import number, print_table, progress
from fleet.data.shipped import shipped_scenarios
from fleet.records.intervals import student_t_interval
from fleet.records.metrics import measure
from fleet.scenario.reading import read_scenario
from sim.run import simulate

REQUESTS = 60
HELP, SIMULATION, METRICS = (
    "specfleet --help",
    f"specfleet simulate star, {REQUESTS} requests",
    f"measure, {REQUESTS} requests",
)
AIMS_S = {HELP: 0.3, SIMULATION: 1.0, METRICS: 0.015}  # of processor time


def bench_small(repetitions: int) -> dict[str, list[float]]:
    """Do each in turn, and so often; return its processor times in seconds."""
    few = f"workload.requests={REQUESTS}"
    run = simulate(read_scenario(shipped_scenarios()["star"], [few], Path()))
    what: dict[str, Callable[[], object]] = {
        HELP: lambda: _specfleet("--help"),
        SIMULATION: lambda: _specfleet("simulate", "star", "--set", few),
        METRICS: lambda: measure(run),
    }
    times_s: dict[str, list[float]] = {name: [] for name in what}
    with progress("what every user waits for", (repetitions + 1) * len(what)) as advance:
        for turn in range(repetitions + 1):
            for name, does in what.items():
                advance(name)
                begun_s = _used_s()
                does()
                if turn:  # the first one finds nothing in memory, and compiles what Python keeps
                    times_s[name].append(_used_s() - begun_s)
    return times_s


def _specfleet(*arguments: str) -> None:
    ended = run_child([sys.executable, "-m", "specfleet", *arguments], stdout=DEVNULL, stderr=DEVNULL)
    if ended.returncode:
        raise RuntimeError(f"specfleet {' '.join(arguments)} ended with status {ended.returncode}")


def _used_s() -> float:
    """Processor time of this process, and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def show_small(times_s: Mapping[str, Sequence[float]]) -> None:
    """Print the times with their intervals, beside what they may be at most."""
    rows = []
    for name, of_name in times_s.items():
        low, high = student_t_interval(of_name)[-2:]
        aim_s = AIMS_S[name]
        met = "met" if high <= aim_s else "missed" if low > aim_s else "open"
        rows.append((name, *(number(1e3 * time_s) for time_s in (float(np.mean(of_name)), low, high, aim_s)), met))
    print_table(
        "what every user waits for, milliseconds of processor time",
        ("what", "mean", "95 % from", "to", "at most", ""),
        rows,
    )
