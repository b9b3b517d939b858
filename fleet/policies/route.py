"""Routing: which of several drafters drafts next for a session, by views that may be out of date."""

from collections.abc import Sequence

import msgspec


class DrafterView(msgspec.Struct, frozen=True):
    """A router's last view of a drafter, and the work sent there since.

    - `waiting`: sessions in its buffer and in its running step.
    - `work_s`: expected time to serve them.
    """

    at_s: float = 0.0
    waiting: int = 0
    work_s: float = 0.0
    sent_since: int = 0

    @property
    def queue(self) -> int:
        """Sessions there, including those sent after the drafter's report."""
        return self.waiting + self.sent_since


class Affinity(msgspec.Struct, frozen=True, tag="affinity", tag_field="policy", forbid_unknown_fields=True):
    """A session keeps its drafter; new sessions are dealt to the drafters in turn."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int:
        """Return the number of the drafter."""
        return tag % len(views) if home is None else home


class RoundRobin(msgspec.Struct, frozen=True, tag="round-robin", tag_field="policy", forbid_unknown_fields=True):
    """Each drafter in turn, whatever its queue."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int:
        """Return the number of the drafter."""
        return turn % len(views)


class ShortestQueue(msgspec.Struct, frozen=True, tag="shortest-queue", tag_field="policy", forbid_unknown_fields=True):
    """The drafter with the fewest sessions by the views; the session's own one among equals."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int:
        """Return the number of the drafter."""
        return min(range(len(views)), key=lambda i: (views[i].queue, i != home, i))


class LeastWork(msgspec.Struct, frozen=True, tag="least-work", tag_field="policy", forbid_unknown_fields=True):
    """The drafter that will be free first, by its expected work."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int:
        """Return the number of the drafter."""

        def cost(i: int) -> tuple[float, int]:
            view = views[i]
            each_s = view.work_s / view.waiting if view.waiting else 0.0
            return view.work_s + each_s * view.sent_since, view.queue

        return min(range(len(views)), key=lambda i: (*cost(i), i != home, i))


Route = Affinity | RoundRobin | ShortestQueue | LeastWork
