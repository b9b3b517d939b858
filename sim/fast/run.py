"""Run the compiled loop: from a resolved fleet to its event table, or to the tables of its metrics."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from specfleet.fleet.records.metrics.findings import Findings, findings_of_rows
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import check_records, requests_of
from specfleet.sim.fast.compiled import CODE, ready
from specfleet.sim.fast.events import BLOCKS, LENGTHS, OVER, PLACES, RATIOS, ROWS, WAYS, Array
from specfleet.sim.fast.layout import A_BLOCK, A_PART
from specfleet.sim.fast.serving import run_serving
from specfleet.sim.fast.serving_arrays import ServingArrays, serving_of, with_messages, with_rows
from specfleet.sim.fast.serving_state import StepLog
from specfleet.sim.fast.sharing_arrays import with_blocks
from specfleet.sim.fast.streamed import streamed_findings
from specfleet.sim.fast.table import EventTable, rows_of

FIRST_ROOM, ROOM = 1 << 12, 1 << 17  # blocks of the smallest log, and rows of a batch
KEPT = 1 << 18  # rows up to which metrics come from a whole log


def simulate_records(fleet: Fleet) -> pa.Table:
    """Simulate a supported fleet to its end; return its event table. Raises InputError as the SimPy path does."""
    check_records(fleet, requests_of(fleet))
    table, batches = EventTable(fleet), list[pa.Table]()
    served(fleet, ROOM, lambda arrays, log: batches.append(table.rows(arrays, log)), recorded=True)
    return pa.concat_tables(batches)


def simulate_findings(fleet: Fleet, take: Callable[[pa.Table], None] | None = None) -> Findings:
    """Simulate a supported fleet to its end; return the tables of its metrics. The event table is not kept.

    - `take`: takes its parts as they come.
    """
    table, logs = EventTable(fleet), list[StepLog]()

    def log_full(arrays: ServingArrays, log: StepLog) -> None:
        if take is not None:
            take(table.rows(arrays, log))
            log = log if logs else StepLog(*map(np.copy, log))  # the loop writes over it
        logs.append(log)

    arrays = served(fleet, KEPT, log_full, recorded=take is not None)
    rows = rows_of(fleet, arrays, logs[0])
    if len(logs) == 1 and arrays.clocks["logs"][0]:
        return findings_of_rows(fleet, rows)
    return streamed_findings(fleet, arrays, rows)


def _advance(arrays: ServingArrays, log: StepLog) -> tuple[ServingArrays, int]:
    """Run the loop until its log is full or it is over. Draw the random numbers that it needs, and make room for it."""
    code = None
    while True:
        arguments = (CODE, *arrays[:-2], log)  # without the sources of random numbers
        code = code or ready(run_serving, *arguments)
        need, subject = code(*arguments)
        if need == RATIOS:
            arrays = arrays._replace(numbers=arrays.sources.refill(subject, arrays.numbers))
        elif need == LENGTHS and arrays.lengths is not None:
            arrays.lengths.draw(arrays.numbers, subject, arrays.streams[subject])
        elif need == PLACES:
            arrays = with_rows(arrays, subject)
        elif need == WAYS:
            arrays = with_messages(arrays, subject)
        elif need == BLOCKS and arrays.sharing is not None:
            arrays = arrays._replace(sharing=with_blocks(arrays.sharing, arrays.limits.targets))
        else:
            return arrays, need


def served(fleet: Fleet, rows: int, take: Callable[[ServingArrays, StepLog], None], recorded: bool) -> ServingArrays:
    """Run the loop of serving targets to its end; give its log to `take` whenever so many rows are full.

    - `recorded`: whether it goes on to log rows when they are full for the first time, in the same log.
    """
    arrays, need = serving_of(fleet), ROWS
    most = len(arrays.slots.running) + 2  # parts of one step, and of all that run
    log = allocate_parts(2 * most + rows)
    while need != OVER:
        arrays, need = _advance(arrays, log)
        clock = arrays.clocks[0]
        if clock["logs"]:
            take(arrays, StepLog(log.parts[: clock["parts"]], log.blocks[: clock["blocks"]]))
        full = log
        if need == ROWS and not recorded and clock["logs"]:
            clock["logs"], log = 0, allocate_parts(2 * most)
        _keep_running(arrays.stations, full, log)
        clock["parts"], clock["blocks"] = most, 0
    return arrays


def _keep_running(stations: Array, full: StepLog, log: StepLog) -> None:
    """Let the next log begin with the parts of steps that run, at the places of their stations."""
    busy = np.flatnonzero(stations["is_busy"])
    counts, starts, places = (stations[name][busy] for name in ("members", "logged", "start"))
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    log.parts[np.repeat(places, counts) + within] = full.parts[np.repeat(starts, counts) + within]
    stations["logged"][busy] = places


def allocate_parts(parts: int) -> StepLog:
    """Allocate a log of so many parts of steps and messages. A message is a block of one part, a step often of more."""
    return StepLog(np.empty(parts, dtype=A_PART), np.empty(max(FIRST_ROOM, parts // 2), dtype=A_BLOCK))
