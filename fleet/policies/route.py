"""Which of several drafters drafts next for a session: rules on views of the drafters that may be out of date.

Where a rule waits for news of the drafters, it does so for every session.
"""

from collections.abc import Sequence

import msgspec


class DrafterView(msgspec.Struct, frozen=True):
    """What a router last heard of a drafter, and what it has sent there since.

    `waiting`: sessions in its buffer and in its running step. `work_s`: how long they will take, as it expects.
    """

    at_s: float = 0.0
    waiting: int = 0
    work_s: float = 0.0
    sent_since: int = 0

    @property
    def queue(self) -> int:
        """Sessions there, those included of which the drafter had not heard when it reported."""
        return self.waiting + self.sent_since


class Affinity(msgspec.Struct, frozen=True, tag="affinity", tag_field="policy", forbid_unknown_fields=True):
    """A session stays where it is; a new one goes to the drafter of its number, dealt in turn."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int | None:
        """Number of the drafter; None to wait for news."""
        return tag % len(views) if home is None else home


class RoundRobin(msgspec.Struct, frozen=True, tag="round-robin", tag_field="policy", forbid_unknown_fields=True):
    """One drafter after the other, whatever they are doing."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int | None:
        """Number of the drafter; None to wait for news."""
        return turn % len(views)


class ShortestQueue(msgspec.Struct, frozen=True, tag="shortest-queue", tag_field="policy", forbid_unknown_fields=True):
    """The drafter with the fewest sessions, as far as the views tell; the session's own one among equals."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int | None:
        """Number of the drafter; None to wait for news."""
        return min(range(len(views)), key=lambda i: (views[i].queue, i != home, i))


class LeastWork(msgspec.Struct, frozen=True, tag="least-work", tag_field="policy", forbid_unknown_fields=True):
    """The drafter that will be free first, by the work that it expects."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int | None:
        """Number of the drafter; None to wait for news."""

        def cost(i: int) -> tuple[float, int]:
            view = views[i]
            each_s = view.work_s / view.waiting if view.waiting else 0.0
            return view.work_s + each_s * view.sent_since, view.queue

        return min(range(len(views)), key=lambda i: (*cost(i), i != home, i))


class Central(msgspec.Struct, frozen=True, tag="central", tag_field="policy", forbid_unknown_fields=True):
    """One queue for all: a session waits at the router until a drafter has nothing to do."""

    def choose(self, tag: int, home: int | None, views: Sequence[DrafterView], turn: int) -> int | None:
        """Number of the drafter; None to wait for news."""
        idle = [i for i, view in enumerate(views) if view.queue == 0]
        if not idle:
            return None
        return home if home in idle else idle[0]


Route = Affinity | RoundRobin | ShortestQueue | LeastWork | Central
