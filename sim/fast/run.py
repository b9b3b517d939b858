"""Drive the compiled loop from a resolved fleet to its event table, or to its findings."""

import numpy as np
import pyarrow as pa

from fleet.records.metrics.findings import Findings
from fleet.scenario.resolved import Fleet
from sim.fast.arrays import Star, star_of
from sim.fast.compiled import ready
from sim.fast.kernel import COLUMNS, LENGTHS, OVER, RATIOS, ROWS, TIMES, Array, Told, run_star
from sim.fast.table import Table
from sim.fast.told import findings_of_told, room_for, with_more_room

FIRST_ROOM, ROOM = 1 << 12, 1 << 17  # rows of a batch: few at first, later as many as large pages of memory suit


def records_of(fleet: Fleet) -> tuple[pa.Table, dict[str, int]]:
    """Simulate a plain star to its end; return the rows that the SimPy path would write, and their numbers by station.

    Raises InputError as that does, RuntimeError if the fleet stalls.
    """
    star, table, need, room, nothing = star_of(fleet), Table(fleet), ROWS, FIRST_ROOM, room_for(0, 0)
    clock = star.clocks[0]
    while need != OVER:
        columns = np.zeros((len(TIMES) + len(COLUMNS), room), dtype=np.int64)
        times, rows, room = columns[: len(TIMES)].view(np.float64), columns[len(TIMES) :], min(2 * room, ROOM)
        star, need = _run(star, times, rows, nothing)
        table.take(times, rows, int(clock["rows"]))
        clock["rows"] = 0
    _check_ended(star)
    return table.whole(), table.counts(star.stations["written"])


def told_by(fleet: Fleet) -> Findings:
    """Simulate a plain star to its end; return what the rows of `records_of` would tell, without them.

    Raises InputError and RuntimeError as that does.
    """
    star = star_of(fleet)
    told = room_for(int(1.1 * star.lengths.rounds) + FIRST_ROOM, len(star.requests))
    times, rows = np.zeros((len(TIMES), 0)), np.zeros((len(COLUMNS), 0), dtype=np.int64)
    star, need = _run(star, times, rows, told)
    while need != OVER:
        told = with_more_room(told)
        star, need = _run(star, times, rows, told)
    _check_ended(star)
    return findings_of_told(fleet, star, told)


def _check_ended(star: Star) -> None:
    streams, goals = star.streams, star.requests["goal"]
    open_streams = (streams["request"] < streams["last"]) | (streams["committed"] < goals[streams["request"]])
    if open_streams.any():
        raise RuntimeError(f"simulation stalled with open streams {streams['tag'][open_streams].tolist()}")


def _run(star: Star, times: Array, rows: Array, told: Told) -> tuple[Star, int]:
    """Let the loop go on until it needs new rows or is over, with all the random numbers that it needs."""
    while True:
        arguments = (
            star.requests, star.streams, star.stations, star.wires, star.means, star.idleness, star.numbers, star.heap,
            star.clocks, times, rows, told,
        )  # fmt: skip
        need, whose = ready(run_star, *arguments)(*arguments)
        if need == RATIOS:
            star = star._replace(numbers=star.sources.refill(whose, star.numbers))
        elif need == LENGTHS:
            star = _more_lengths(star, whose)
        else:
            return star, need


def _more_lengths(star: Star, stream: int) -> Star:
    """Draw more acceptance lengths for the open request of a stream."""
    one = star.streams[stream]
    request = star.requests[one["request"]]
    drawn = int(request["lengths_to"] - request["lengths_from"])
    one["length"], one["lengths_to"] = star.lengths.more(int(request["number"]), drawn)
    return star._replace(numbers=star.numbers._replace(lengths=star.lengths.pool.array))
