"""How fast a run goes just now: differences of counts over the last seconds."""

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from fleet.records.counts import Counts, OfStation, OfTarget

WINDOW_S = 10.0
NONE = float("nan")  # of what did not happen


class Pace(msgspec.Struct, frozen=True):
    """What one target, or all, did lately: tokens and rounds a second, the share of draft tokens that was accepted.

    `length`: accepted draft tokens of a draft, on average; it and `acceptance` are NaN where nothing was drafted.
    """

    tokens_per_s: float = 0.0
    rounds_per_s: float = 0.0
    acceptance: float = NONE
    length: float = NONE


class Rates(msgspec.Struct, frozen=True):
    """Rates over the last `seconds`. `load`: the share of time in which a drafter worked, the mean over drafters.

    `draft_s`: the mean time of a draft step on the drafter's clock. Both are NaN where there is none.
    """

    seconds: float = 0.0
    all: Pace = Pace()
    by_target: Mapping[int, Pace] = {}
    load: float = NONE
    draft_s: float = NONE


class Lately:
    """Keeps the counts of the last WINDOW_S seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self.kept: deque[Counts] = deque([Counts(0.0)])

    def add(self, counts: Counts) -> Rates:
        """Take newer counts; return the rates up to them, since the run began if that was not long ago."""
        self.kept.append(counts)
        while len(self.kept) > 2 and self.kept[1].time_s <= counts.time_s - self.window_s:
            self.kept.popleft()
        return rates_between(self.kept[0], counts)


def rates_between(before: Counts, after: Counts) -> Rates:
    """Return the rates between two counts of the same run."""
    seconds = after.time_s - before.time_s
    if seconds <= 0:
        return Rates()
    ours = {one.target: one for one in before.known}
    changes = {one.target: _change(ours.get(one.target, OfTarget(one.target)), one) for one in after.known}
    was = {one.name: one for one in before.stations}
    drafters = [(was.get(one.name, OfStation(one.name)), one) for one in after.drafters]
    load = sum(now.busy_s - then.busy_s for then, now in drafters) / (seconds * len(drafters)) if drafters else NONE
    steps = [(then.steps.get("draft", (0, 0.0)), now.steps.get("draft", (0, 0.0))) for then, now in drafters]
    number, total_s = (sum(now[part] - then[part] for then, now in steps) for part in (0, 1))
    return Rates(
        seconds,
        _pace(changes.values(), seconds),
        {target: _pace([change], seconds) for target, change in changes.items()},
        load,
        total_s / number if number else NONE,
    )


class _Change(msgspec.Struct, frozen=True):
    committed: int
    rounds: int
    drafts: int
    drafted: int
    accepted: int


def _change(before: OfTarget, after: OfTarget) -> _Change:
    return _Change(
        after.committed - before.committed,
        after.rounds - before.rounds,
        after.drafts - before.drafts,
        after.drafted - before.drafted,
        after.accepted_tokens - before.accepted_tokens,
    )


def _pace(changes: Iterable[_Change], seconds: float) -> Pace:
    told = list(changes)
    committed, rounds, drafts, drafted, accepted = (
        sum(getattr(one, name) for one in told) for name in _Change.__struct_fields__
    )
    return Pace(
        committed / seconds,
        rounds / seconds,
        accepted / drafted if drafted else NONE,
        accepted / drafts if drafts else NONE,
    )
