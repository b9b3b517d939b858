"""Run the compiled loop: from a resolved fleet to its event table, or to the tables of its metrics."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from specfleet.fleet.records.metrics.findings import Findings
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.fast import serving_state as serving
from specfleet.sim.fast.arrays import StarArrays, star_of
from specfleet.sim.fast.choice import has_serving_targets
from specfleet.sim.fast.compiled import CODE, ready
from specfleet.sim.fast.events import LENGTHS, OVER, PLACES, RATIOS, ROWS, WAYS
from specfleet.sim.fast.findings import allocate_log, make_findings, with_double_capacity
from specfleet.sim.fast.kernel import COLUMNS, TIMES, run_star
from specfleet.sim.fast.layout import A_BLOCK, A_PART
from specfleet.sim.fast.numbers import DealtLengths
from specfleet.sim.fast.serving import run_serving
from specfleet.sim.fast.serving_arrays import ServingArrays, serving_of, with_messages, with_rows
from specfleet.sim.fast.serving_findings import columns_of, findings_of_log, rows_of
from specfleet.sim.fast.streamed import streamed_findings
from specfleet.sim.fast.table import RowBatches

Lengths = TypeVar("Lengths", StarArrays, ServingArrays)

FIRST_ROOM, ROOM = 1 << 12, 1 << 17  # rows of the first batch, and of the largest
KEPT = 1 << 19  # rows up to which metrics come from a whole log


def simulate_records(fleet: Fleet) -> tuple[pa.Table, dict[str, int]]:
    """Simulate a supported fleet to its end; return its event table, and the number of rows of each station.

    Raises InputError as the SimPy path does.
    """
    table = RowBatches(fleet)
    if has_serving_targets(fleet):
        arrays = served(fleet, ROOM, lambda arrays, log: table.take(columns_of(fleet, arrays, log), rows_in(log)), True)
        return table.whole(), table.counts(arrays.stations["written"])
    star, need, room, empty = star_of(fleet), ROWS, FIRST_ROOM, allocate_log(0, 0)
    clock = star.clocks[0]
    while need != OVER:
        columns = np.zeros((len(TIMES) + len(COLUMNS), room), dtype=np.int64)
        times, rows, room = columns[: len(TIMES)].view(np.float64), columns[len(TIMES) :], min(2 * room, ROOM)
        star, need = _advance(run_star, star, times, rows, empty)
        count = int(clock["rows"])
        table.take(dict(zip((*TIMES, *COLUMNS), (*times[:, :count], *rows[:, :count]), strict=True)), count)
        clock["rows"] = 0
    return table.whole(), table.counts(star.stations["written"])


def simulate_findings(fleet: Fleet) -> Findings:
    """Simulate a supported fleet to its end; return the tables of its metrics, without an event table.

    Errors are those of `simulate_records`.
    """
    if has_serving_targets(fleet):
        logs: list[serving.StepLog | None] = []

        def keep(_arrays: ServingArrays, log: serving.StepLog) -> None:
            logs.append(None if logs else serving.StepLog(log.parts.copy(), log.blocks.copy()))

        arrays = served(fleet, KEPT, keep)
        first = logs[0]
        assert first is not None
        if len(logs) == 1:
            return findings_of_log(fleet, arrays, first)
        return streamed_findings(fleet, arrays, rows_of(fleet, arrays, first, first.blocks))
    star = star_of(fleet)
    log = allocate_log(int(1.1 * star.lengths.rounds) + FIRST_ROOM, len(star.requests))
    times, rows = np.zeros((len(TIMES), 0)), np.zeros((len(COLUMNS), 0), dtype=np.int64)
    star, need = _advance(run_star, star, times, rows, log)
    while need != OVER:
        log = with_double_capacity(log)
        star, need = _advance(run_star, star, times, rows, log)
    return make_findings(fleet, star, log)


def _advance(loop: Callable[..., tuple[int, int]], state: Lengths, *logs: Any) -> tuple[Lengths, int]:
    """Run a loop until it needs rows or is over. Draw the random numbers that it needs; `logs`: what it writes."""
    while True:
        arguments = (CODE, *state[:-2], *logs)  # without the sources of random numbers
        need, subject = ready(loop, *arguments)(*arguments)
        if need == RATIOS:
            state = state._replace(numbers=state.sources.refill(subject, state.numbers))
        elif need == LENGTHS:
            state = _more_lengths(state, subject)
        elif need == PLACES and isinstance(state, ServingArrays):
            state = with_rows(state, subject)
        elif need == WAYS and isinstance(state, ServingArrays):
            state = with_messages(state, subject)
        else:
            return state, need


def served(
    fleet: Fleet, rows: int, take: Callable[[ServingArrays, serving.StepLog], None], recorded: bool = False
) -> ServingArrays:
    """Run the loop of serving targets to its end; give its log to `take` whenever so many rows are full."""
    arrays, need = serving_of(fleet, KEPT, recorded), ROWS
    most = len(arrays.slots.running) + 2  # parts of one step
    log = allocate_parts(2 * most + rows)
    while need != OVER:
        arrays, need = _advance(run_serving, arrays, log)
        clock = arrays.clocks[0]
        take(arrays, serving.StepLog(log.parts[: clock["parts"]], log.blocks[: clock["blocks"]]))
        _begin_anew(arrays, log)
    return arrays


def _begin_anew(arrays: ServingArrays, log: serving.StepLog) -> None:
    """Empty a log, except for the parts of steps that run."""
    stations = arrays.stations
    busy = np.flatnonzero(stations["is_busy"])
    counts, starts = stations["members"][busy], stations["logged"][busy]
    ends = np.cumsum(counts)
    parts = log.parts[np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)]
    log.parts[: len(parts)] = parts
    stations["logged"][busy] = ends - counts
    arrays.clocks["parts"], arrays.clocks["blocks"] = len(parts), 0


def rows_in(log: serving.StepLog) -> int:
    """Return the number of rows in a log."""
    return int(log.blocks["parts"].sum())


def allocate_parts(parts: int) -> serving.StepLog:
    """Allocate a log of so many parts of steps and messages. A message is a block of one part, a step often of more."""
    return serving.StepLog(np.empty(parts, dtype=A_PART), np.empty(max(FIRST_ROOM, parts // 2), dtype=A_BLOCK))


def _more_lengths(state: Lengths, stream: int) -> Lengths:
    """Draw acceptance lengths for the open request of a stream."""
    row, lengths = state.streams[stream], state.lengths
    assert lengths is not None
    if isinstance(lengths, DealtLengths):
        lengths.draw(state.numbers, stream, row)
        return state
    request = state.requests[row["request"]]
    drawn = int(request["lengths_to"] - request["lengths_from"])
    row["length"], row["lengths_to"] = lengths.more(int(request["number"]), drawn)
    return state._replace(numbers=state.numbers._replace(lengths=lengths.pool.array))
