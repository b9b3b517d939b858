"""What waits for a station's device, oldest first; finding out that nothing waits for a session takes no search."""

from collections import deque

import msgspec

from fleet.times.step import StepKind


class Work(msgspec.Struct, frozen=True, gc=False):
    """One thing to do for one session, waiting in a station's buffer since `asked_s`.

    `target`: whose session it is, from 0. `virtual_start`: for weighted orders. `not_before_s`: where a rate limit
    holds it back.
    """

    kind: StepKind
    tag: int
    priority: int = 0
    target: int = 0
    asked_s: float = 0.0
    virtual_start: float = 0.0
    not_before_s: float = 0.0


class Buffer(deque[Work]):
    """Work in the order in which it came; `append`, `take` and `drop` are what changes it."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[int, int] = {}  # how much waits for each session, by tag; none for those that have nothing

    def append(self, work: Work) -> None:
        """Queue work behind all that waits."""
        super().append(work)
        self._of[work.tag] = self._of.get(work.tag, 0) + 1

    def take(self, index: int) -> Work:
        """Take out the work at an index."""
        work = self[index]
        del self[index]
        left = self._of[work.tag] - 1
        if left:
            self._of[work.tag] = left
        else:
            del self._of[work.tag]
        return work

    def drop(self, tag: int) -> None:
        """Take out all work for a session."""
        if self._of.pop(tag, 0):
            kept = [work for work in self if work.tag != tag]
            self.clear()
            self.extend(kept)

    def holds(self, tag: int) -> int:
        """How much work waits for a session."""
        return self._of.get(tag, 0)
