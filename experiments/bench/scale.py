"""What a round costs the simulator as a star grows, and how much memory: each size in a process of its own."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from experiments.bench.simulator import star
from experiments.terminal.printing import number, print_table
from fleet.records.columns import Table
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


def bench_scale(sizes: Sequence[int] = SIZES) -> list[Cost]:
    """Simulate stars of these sizes, one after the other."""
    return [_in_a_process(targets) for targets in sizes]


def show_scale(costs: Sequence[Cost]) -> None:
    """Print a row a size."""
    rows = [
        (
            str(cost.targets), str(cost.rounds), number(1e6 * cost.round_s),
            number(cost.round_s / costs[0].round_s), number(cost.peak_bytes / 1e6),
        )
        for cost in costs
    ]  # fmt: skip
    headings = ("targets", "rounds", "us of processor a round", f"over N = {costs[0].targets}", "peak memory, MB")
    print_table("simulator, one star of N targets, full records", headings, rows, texts=0)


def cost_of(targets: int) -> Cost:
    """Simulate one star in this process; the peak is that of all that the process has done."""
    scenario = star(max(REQUESTS_OF_TARGET * targets, LEAST_REQUESTS), targets)
    before_s = time.process_time()
    run = simulate(scenario, path="simpy")
    cpu_s = time.process_time() - before_s
    peak = peak_bytes()
    rows: Table = run.columns()
    return Cost(targets, int((rows.event.among("done") & rows.kind.among("verify")).sum()), cpu_s, peak)


def peak_bytes() -> int:
    """Most memory that this process had at once, as Linux knows it; `ru_maxrss` would count the process before it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def _in_a_process(targets: int) -> Cost:
    command = [sys.executable, "-m", "experiments.bench.scale", str(targets)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603  (it is this file)
    return msgspec.json.decode(done.stdout, type=Cost)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(cost_of(int(sys.argv[1]))))
