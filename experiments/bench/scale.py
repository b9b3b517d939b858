"""What a round costs the simulator as a star grows, and how much memory: each size in a process of its own."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from experiments.bench.simulator import star
from experiments.terminal.exits import run_child
from experiments.terminal.printing import number, print_table
from fleet.records.columns import Table
from fleet.scenario.names import SimPath
from sim.fast.choice import has_numba
from sim.run import simulate

SIZES = (10, 100, 1000, 10_000)
REQUESTS_OF_TARGET, LEAST_REQUESTS = 4, 800  # of 27 rounds each: about 10^6 rounds of 10^4 targets


class Cost(msgspec.Struct, frozen=True):
    """A simulation with full records: its targets and rounds, processor time in seconds, peak memory in bytes."""

    targets: int
    rounds: int
    cpu_s: float
    peak_bytes: int

    @property
    def round_s(self) -> float:
        """Processor time for a round."""
        return self.cpu_s / self.rounds


def bench_scale(sizes: Sequence[int] = SIZES, path: SimPath = "simpy") -> list[Cost]:
    """Simulate stars of these sizes, one after the other; `path`: how."""
    return [_in_a_process(targets, path) for targets in sizes]


def both_paths(sizes: Sequence[int] = SIZES) -> dict[str, list[Cost]]:
    """Simulate these sizes by SimPy and, where numba is installed, by the compiled loop; costs by path."""
    paths: tuple[SimPath, ...] = ("simpy", "fast") if has_numba() else ("simpy",)
    return {path: bench_scale(sizes, path) for path in paths}


def show_scale(costs: Sequence[Cost], path: str = "simpy") -> None:
    """Print a row a size."""
    rows = [
        (
            str(cost.targets), str(cost.rounds), number(1e6 * cost.round_s),
            number(cost.round_s / costs[0].round_s), number(cost.peak_bytes / 1e6),
        )
        for cost in costs
    ]  # fmt: skip
    headings = ("targets", "rounds", "us of processor a round", f"over N = {costs[0].targets}", "peak memory, MB")
    print_table(f"simulator, one star of N targets, full records, path {path}", headings, rows, texts=0)


def cost_of(targets: int, path: SimPath = "simpy") -> Cost:
    """Simulate one star in this process; the peak is that of all that the process has done."""
    if path == "fast":
        simulate(star(2, 1), path=path)  # what loads and compiles it
    scenario = star(max(REQUESTS_OF_TARGET * targets, LEAST_REQUESTS), targets)
    before_s = time.process_time()
    run = simulate(scenario, path=path)
    cpu_s = time.process_time() - before_s
    peak = peak_bytes()
    rows: Table = run.columns()
    return Cost(targets, int((rows.event.among("done") & rows.kind.among("verify")).sum()), cpu_s, peak)


def peak_bytes() -> int:
    """Most memory that this process had at once, as Linux knows it; `ru_maxrss` would count the process before it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def _in_a_process(targets: int, path: SimPath) -> Cost:
    command = [sys.executable, "-c", f"from experiments.bench.scale import tell; tell({targets}, {path!r})"]
    done = run_child(command, stdout=subprocess.PIPE, start_new_session=True)  # Ctrl-C is for us, who then end it
    done.check_returncode()
    return msgspec.json.decode(done.stdout, type=Cost)


def tell(targets: int, path: SimPath) -> None:
    """Write what a star costs this process to standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(cost_of(targets, path)))
