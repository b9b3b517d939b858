"""Where a node's status hangs out: whoever counts puts it up, whoever is asked reads it off. From any thread."""

import math
from collections.abc import Sequence

import msgspec

from engine.net.status import ROWS, Status, StatusRow
from fleet.records.counts import Counts, OfTarget
from fleet.records.rates import Lately, Pace, Rates, paces_between
from fleet.scenario.settled import Fleet


class Board:
    """The newest counts, and those of some seconds ago. Nothing is worked out that nobody asks for.

    `node`: the name of its station.
    """

    def __init__(self, fleet: Fleet, node: str) -> None:
        self.empty = Status(node[:64], fleet.name[:200], 0.0, fleet.verifiers.count)
        self.lately = Lately()
        self.made_of: Counts | None = None
        self.made = self.empty, tuple(StatusRow(target) for target in range(fleet.verifiers.count))

    def put(self, counts: Counts) -> None:
        """Put up newer counts."""
        self.lately.add(counts)

    def page(self, first: int) -> Status:
        """Return the status with the rows of some targets, from number `first` on. By one thread alone."""
        before, after = self.lately.ends()
        if after is not self.made_of and after.time_s > 0:
            paces, known = paces_between(before, after), {one.target: one for one in after.known}
            rows = tuple(_row(known.get(row.target, OfTarget(row.target)), paces) for row in self.made[1])
            self.made, self.made_of = (_header(self.empty, after, self.lately.rates()), rows), after
        header, rows = self.made
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


def _row(one: OfTarget, paces: dict[int, Pace]) -> StatusRow:
    pace, waits_s = paces.get(one.target, Pace()), sorted(one.waits_s)
    return StatusRow(
        one.target, one.sessions, one.waiting, one.rounds, pace.tokens_per_s, _known(pace.acceptance),
        _percentile(waits_s, 0.5), _percentile(waits_s, 0.9),
    )  # fmt: skip


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[int(share * len(ordered))] if ordered else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
