"""Run the compiled loop: from a resolved fleet to its event table, or to the tables of its metrics."""

import numpy as np
import pyarrow as pa

from fleet.records.metrics.findings import Findings
from fleet.scenario.resolved import Fleet
from sim.fast.arrays import StarArrays, star_of
from sim.fast.compiled import ready
from sim.fast.findings import allocate_log, make_findings, with_double_capacity
from sim.fast.kernel import COLUMNS, LENGTHS, OVER, RATIOS, ROWS, TIMES, Array, StepLog, run_star
from sim.fast.table import RowBatches

FIRST_ROOM, ROOM = 1 << 12, 1 << 17  # rows of the first batch, and of the largest


def simulate_records(fleet: Fleet) -> tuple[pa.Table, dict[str, int]]:
    """Simulate a plain star to its end; return its event table, and the number of rows of each station.

    Raises InputError as the SimPy path does.
    """
    star, table, need, room, empty = star_of(fleet), RowBatches(fleet), ROWS, FIRST_ROOM, allocate_log(0, 0)
    clock = star.clocks[0]
    while need != OVER:
        columns = np.zeros((len(TIMES) + len(COLUMNS), room), dtype=np.int64)
        times, rows, room = columns[: len(TIMES)].view(np.float64), columns[len(TIMES) :], min(2 * room, ROOM)
        star, need = _run(star, times, rows, empty)
        table.take(times, rows, int(clock["rows"]))
        clock["rows"] = 0
    return table.whole(), table.counts(star.stations["written"])


def simulate_findings(fleet: Fleet) -> Findings:
    """Simulate a plain star to its end; return the tables of its metrics, without an event table.

    Errors are those of `simulate_records`.
    """
    star = star_of(fleet)
    log = allocate_log(int(1.1 * star.lengths.rounds) + FIRST_ROOM, len(star.requests))
    times, rows = np.zeros((len(TIMES), 0)), np.zeros((len(COLUMNS), 0), dtype=np.int64)
    star, need = _run(star, times, rows, log)
    while need != OVER:
        log = with_double_capacity(log)
        star, need = _run(star, times, rows, log)
    return make_findings(fleet, star, log)


def _run(star: StarArrays, times: Array, rows: Array, log: StepLog) -> tuple[StarArrays, int]:
    """Run the loop until it needs rows or is over. Draw the random numbers that it needs."""
    while True:
        arguments = (
            star.requests, star.streams, star.stations, star.wires, star.means, star.numbers, star.heap,
            star.clocks, times, rows, log,
        )  # fmt: skip
        need, subject = ready(run_star, *arguments)(*arguments)
        if need == RATIOS:
            star = star._replace(numbers=star.sources.refill(subject, star.numbers))
        elif need == LENGTHS:
            star = _more_lengths(star, subject)
        else:
            return star, need


def _more_lengths(star: StarArrays, stream: int) -> StarArrays:
    """Draw acceptance lengths for the open request of a stream."""
    one = star.streams[stream]
    request = star.requests[one["request"]]
    drawn = int(request["lengths_to"] - request["lengths_from"])
    one["length"], one["lengths_to"] = star.lengths.more(int(request["number"]), drawn)
    return star._replace(numbers=star.numbers._replace(lengths=star.lengths.pool.array))
