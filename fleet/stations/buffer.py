"""Work that waits for a station's device, oldest first."""

from collections import deque
from collections.abc import Iterator, Sequence

from specfleet.fleet.policies.order import StepKind, Work


class Buffer(deque[Work]):
    """Work in order of arrival."""

    def take(self, indices: Sequence[int]) -> list[Work]:
        """Remove and return the work at these indices."""
        works = [self[index] for index in indices]
        for index in sorted(indices, reverse=True):
            del self[index]
        return works

    def holds(self, tag: int) -> bool:
        """Return whether work for a session waits."""
        return any(work.tag == tag for work in self)

    def drop(self, tag: int) -> None:
        """Remove all work for a session."""
        kept = [work for work in self if work.tag != tag]
        if len(kept) < len(self):
            self.clear()
            self.extend(kept)


class Tasks:
    """At most one work for each session of a target, oldest first, found by tag at once."""

    def __init__(self) -> None:
        self._works: dict[int, tuple[int, Work]] = {}  # place and work, by tag
        self._made = 0

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        return (work for _, work in self._works.values())

    def __repr__(self) -> str:
        return repr(list(self))

    def append(self, work: Work) -> None:
        """Add the work of a session that has none."""
        assert work.tag not in self._works, work
        self._made += 1
        self._works[work.tag] = self._made, work

    def kind(self, tag: int) -> StepKind | None:
        """Return the kind of a session's work; None if it has none."""
        return self._works[tag][1].kind if tag in self._works else None

    def place(self, tag: int) -> int:
        """Return the place of a session's work among all that were ever added; behind all if it has none."""
        return self._works[tag][0] if tag in self._works else self._made + 1

    def holds(self, tag: int) -> bool:
        """Return whether work for a session waits."""
        return tag in self._works

    def drop(self, tag: int) -> None:
        """Remove the work for a session, if any."""
        self._works.pop(tag, None)
