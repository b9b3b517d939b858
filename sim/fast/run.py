"""Run the compiled loop: from a resolved fleet to its event table, or to the tables of its metrics."""

from typing import TypeVar

import numpy as np
import pyarrow as pa

from fleet.records.metrics.findings import Findings
from fleet.scenario.resolved import Fleet
from sim.fast.arrays import StarArrays, star_of
from sim.fast.compiled import ready
from sim.fast.findings import allocate_log, make_findings, with_double_capacity
from sim.fast.kernel import COLUMNS, LENGTHS, OVER, RATIOS, ROWS, TIMES, Array, StepLog, run_star
from sim.fast.layout import A_LINE
from sim.fast.plain import has_serving_targets
from sim.fast.serving import run_serving
from sim.fast.serving_arrays import ServingArrays, serving_of
from sim.fast.serving_findings import findings_of_lines
from sim.fast.table import RowBatches

Lengths = TypeVar("Lengths", StarArrays, ServingArrays)

FIRST_ROOM, ROOM = 1 << 12, 1 << 17  # rows of the first batch, and of the largest


def simulate_records(fleet: Fleet) -> tuple[pa.Table, dict[str, int]]:
    """Simulate a supported fleet to its end; return its event table, and the number of rows of each station.

    Raises InputError as the SimPy path does.
    """
    table = RowBatches(fleet)
    if has_serving_targets(fleet):
        serving, lines = _served(fleet)
        table.take({name: lines[name] for name in A_LINE.names or ()}, len(lines))
        return table.whole(), table.counts(serving.targets["written"])
    star, need, room, empty = star_of(fleet), ROWS, FIRST_ROOM, allocate_log(0, 0)
    clock = star.clocks[0]
    while need != OVER:
        columns = np.zeros((len(TIMES) + len(COLUMNS), room), dtype=np.int64)
        times, rows, room = columns[: len(TIMES)].view(np.float64), columns[len(TIMES) :], min(2 * room, ROOM)
        star, need = _run(star, times, rows, empty)
        count = int(clock["rows"])
        table.take(dict(zip((*TIMES, *COLUMNS), (*times[:, :count], *rows[:, :count]), strict=True)), count)
        clock["rows"] = 0
    return table.whole(), table.counts(star.stations["written"])


def simulate_findings(fleet: Fleet) -> Findings:
    """Simulate a supported fleet to its end; return the tables of its metrics, without an event table.

    Errors are those of `simulate_records`.
    """
    if has_serving_targets(fleet):
        serving, lines = _served(fleet)
        return findings_of_lines(fleet, serving, lines)
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


def _served(fleet: Fleet) -> tuple[ServingArrays, Array]:
    """Run the loop of serving targets to its end; return its arrays, and the rows of the event table as records."""
    serving, parts, need = serving_of(fleet), [], ROWS
    clock = serving.clocks[0]
    lines = np.empty(FIRST_ROOM + 2 * len(serving.slots.running), dtype=A_LINE)
    while need != OVER:
        serving, need = _serve(serving, lines)
        parts.append(lines[: clock["rows"]].copy())
        clock["rows"] = 0
    return serving, np.concatenate(parts)


def _serve(serving: ServingArrays, lines: Array) -> tuple[ServingArrays, int]:
    """Run the loop of serving targets, as `_run`."""
    while True:
        arguments = (
            serving.requests, serving.streams, serving.targets, serving.slots, serving.limits, serving.laws,
            serving.numbers, serving.clocks, lines,
        )  # fmt: skip
        need, subject = ready(run_serving, *arguments)(*arguments)
        if need == RATIOS:
            serving = serving._replace(numbers=serving.sources.refill(subject, serving.numbers))
        elif need == LENGTHS:
            serving = _more_lengths(serving, subject)
        else:
            return serving, need


def _more_lengths(state: Lengths, stream: int) -> Lengths:
    """Draw acceptance lengths for the open request of a stream."""
    one, lengths = state.streams[stream], state.lengths
    assert lengths is not None
    request = state.requests[one["request"]]
    drawn = int(request["lengths_to"] - request["lengths_from"])
    one["length"], one["lengths_to"] = lengths.more(int(request["number"]), drawn)
    return state._replace(numbers=state.numbers._replace(lengths=lengths.pool.array))  # type: ignore[arg-type]
