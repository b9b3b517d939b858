"""How fast a run goes just now: differences of counts over the last seconds."""

from collections import deque
from collections.abc import Iterable

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
    load: float = NONE
    draft_s: float = NONE


class Lately:
    """Keeps the counts of the last WINDOW_S seconds, since the run began if that was not long ago."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self.kept: deque[Counts] = deque([Counts(0.0)])

    def add(self, counts: Counts) -> None:
        """Take newer counts."""
        self.kept.append(counts)
        while len(self.kept) > 2 and self.kept[1].time_s <= counts.time_s - self.window_s:
            self.kept.popleft()

    def ends(self) -> tuple[Counts, Counts]:
        """Return the oldest and the newest counts that are kept."""
        return self.kept[0], self.kept[-1]

    def rates(self) -> Rates:
        """Return the rates between them."""
        return rates_between(*self.ends())


def rates_between(before: Counts, after: Counts) -> Rates:
    """Return the rates between two counts of the same run."""
    seconds = after.time_s - before.time_s
    if seconds <= 0:
        return Rates()
    was = {one.name: one for one in before.stations}
    drafters = [(was.get(one.name, OfStation(one.name)), one) for one in after.drafters]
    load = sum(now.busy_s - then.busy_s for then, now in drafters) / (seconds * len(drafters)) if drafters else NONE
    steps = [(then.steps.get("draft", (0, 0.0)), now.steps.get("draft", (0, 0.0))) for then, now in drafters]
    number, total_s = (sum(now[part] - then[part] for then, now in steps) for part in (0, 1))
    return Rates(seconds, _pace(before.known, after.known, seconds), load, total_s / number if number else NONE)


def paces_between(before: Counts, after: Counts) -> dict[int, Pace]:
    """Return the pace of each target between two counts of the same run, by its number."""
    seconds, ours = after.time_s - before.time_s, {one.target: one for one in before.known}
    return {
        one.target: _pace([ours[one.target]] if one.target in ours else [], [one], seconds) if seconds > 0 else Pace()
        for one in after.known
    }


def _pace(before: Iterable[OfTarget], after: Iterable[OfTarget], seconds: float) -> Pace:
    committed, rounds, drafts, drafted, accepted = (
        now - then for then, now in zip(_sums(before), _sums(after), strict=True)
    )
    return Pace(
        committed / seconds,
        rounds / seconds,
        accepted / drafted if drafted else NONE,
        accepted / drafts if drafts else NONE,
    )


def _sums(targets: Iterable[OfTarget]) -> tuple[int, ...]:
    committed = rounds = drafts = drafted = accepted = 0
    for one in targets:
        committed += one.committed
        rounds += one.rounds
        drafts += one.drafts
        drafted += one.drafted
        accepted += one.accepted_tokens
    return committed, rounds, drafts, drafted, accepted
