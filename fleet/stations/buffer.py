"""Work that waits for a station's device, oldest first, with a count for each session."""

from collections import deque

import msgspec

from fleet.times.step import StepKind


class Work(msgspec.Struct, frozen=True, gc=False):
    """One thing to do for one session, in a station's buffer.

    - `virtual_start`: start in virtual time, for weighted orders.
    - `not_before_s`: earliest start under a rate limit.
    - `base`, `left`, `accepted_per_round`: progress of the session; see `Waiting`.
    """

    kind: StepKind
    tag: int
    priority: int = 0
    virtual_start: float = 0.0
    not_before_s: float = 0.0
    base: int = 0
    left: int = 0
    accepted_per_round: float = 0.0


class Buffer(deque[Work]):
    """Work in order of arrival; only `append`, `take` and `drop` change it."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[int, int] = {}  # items that wait for each session, by tag; no entry for 0

    def append(self, work: Work) -> None:
        """Queue work behind all that waits."""
        super().append(work)
        self._of[work.tag] = self._of.get(work.tag, 0) + 1

    def take(self, index: int) -> Work:
        """Remove and return the work at an index."""
        work = self[index]
        del self[index]
        left = self._of[work.tag] - 1
        if left:
            self._of[work.tag] = left
        else:
            del self._of[work.tag]
        return work

    def drop(self, tag: int) -> None:
        """Remove all work for a session."""
        if self._of.pop(tag, 0):
            kept = [work for work in self if work.tag != tag]
            self.clear()
            self.extend(kept)

    def holds(self, tag: int) -> int:
        """Return how much work waits for a session."""
        return self._of.get(tag, 0)
