"""Work that waits for a station's device, oldest first."""

from collections import deque

import msgspec

from specfleet.fleet.times.step import StepKind


class Work(msgspec.Struct, frozen=True, gc=False):
    """One thing to do for one session, in a station's buffer.

    - `virtual_start`: start in virtual time, for weighted orders.
    - `due_s`: deadline, for orders by deadline.
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
    due_s: float = 0.0


class Buffer(deque[Work]):
    """Work in order of arrival."""

    def take(self, index: int) -> Work:
        """Remove and return the work at an index."""
        work = self[index]
        del self[index]
        return work

    def holds(self, tag: int) -> bool:
        """Return whether work for a session waits."""
        return any(work.tag == tag for work in self)

    def drop(self, tag: int) -> None:
        """Remove all work for a session."""
        kept = [work for work in self if work.tag != tag]
        if len(kept) < len(self):
            self.clear()
            self.extend(kept)
