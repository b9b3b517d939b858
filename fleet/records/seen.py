"""Counts that grow while a log is read (`tally.py`); what others may have of them are values of `counts.py`."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from fleet.records.counts import EDGES_S, RECENT, OfTarget, Times


class Seen:
    """Counts of one target that grow."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.rounds = self.drafts = self.drafted = self.committed = self.opened = self.finished = 0
        self.prompt_tokens = self.received_bytes = 0
        self.accepted: list[int] = []
        self.recent_s: deque[float] = deque(maxlen=RECENT)

    def verified(self, drafted: int, accepted: int) -> None:
        """Count a round."""
        self.rounds += 1
        if not drafted:
            return
        self.drafts += 1
        self.drafted += drafted
        if accepted >= len(self.accepted):
            self.accepted += [0] * (accepted + 1 - len(self.accepted))
        self.accepted[accepted] += 1

    def counts(self, now: Sequence[int], recent: bool = False) -> OfTarget:
        """Return them, with what is so now: sessions, waiting, queued; `recent`: with the last waits."""
        sessions, waiting, queued = now
        return OfTarget(
            self.target, sessions, waiting, self.rounds, self.drafts, self.drafted, tuple(self.accepted),
            self.committed, self.opened, self.finished, self.prompt_tokens, self.received_bytes, queued,
            tuple(self.recent_s) if recent else (),
        )  # fmt: skip


class Spread:
    """A histogram that grows."""

    def __init__(self) -> None:
        self.numbers = [0] * (len(EDGES_S) + 1)
        self.sum_s = 0.0

    def add(self, time_s: float) -> None:
        """Count a time."""
        self.numbers[bisect_left(EDGES_S, time_s)] += 1
        self.sum_s += time_s

    def times(self) -> Times:
        """Return it as it is."""
        return Times(tuple(self.numbers), self.sum_s)
