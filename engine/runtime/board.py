"""Where a node's status hangs out: whoever counts puts it up, whoever is asked reads it off. From any thread."""

import math

import msgspec

from engine.runtime.status import ROWS, Status, StatusRow
from fleet.records.counts import Counts, OfTarget
from fleet.records.rates import Lately, Pace, Rates
from fleet.scenario.settled import Fleet


class Board:
    """Pages of the newest counts. All work is done where they are put up, so an answer takes next to no time.

    `node`: the name of its station.
    """

    def __init__(self, fleet: Fleet, node: str) -> None:
        self.empty = Status(node[:64], fleet.name[:200], 0.0, fleet.verifiers.count)
        self.lately = Lately()
        self.newest = self.empty, tuple(StatusRow(target) for target in range(fleet.verifiers.count))

    def put(self, counts: Counts) -> None:
        """Put up newer counts."""
        rates, known = self.lately.add(counts), {one.target: one for one in counts.known}
        rows = tuple(_row(known.get(row.target, OfTarget(row.target)), rates) for row in self.newest[1])
        self.newest = _header(self.empty, counts, rates), rows

    def page(self, first: int) -> Status:
        """Return the status with the rows of some targets, from number `first` on."""
        header, rows = self.newest
        return msgspec.structs.replace(header, first=min(first, len(rows)), rows=rows[first : first + ROWS])


def _header(empty: Status, counts: Counts, rates: Rates) -> Status:
    return msgspec.structs.replace(
        empty,
        time_s=counts.time_s,
        sessions=sum(one.sessions for one in counts.stations),
        waiting=sum(one.waiting for one in counts.stations),
        rounds=sum(one.rounds for one in counts.known),
        tokens_per_s=rates.all.tokens_per_s,
        acceptance=_known(rates.all.acceptance),
        load=_known(rates.load),
        draft_s=_known(rates.draft_s),
    )


def _row(one: OfTarget, rates: Rates) -> StatusRow:
    pace = rates.by_target.get(one.target, Pace())
    return StatusRow(
        one.target, one.sessions, one.waiting, one.rounds, pace.tokens_per_s, _known(pace.acceptance),
        one.wait_p50_s, one.wait_p90_s,
    )  # fmt: skip


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
