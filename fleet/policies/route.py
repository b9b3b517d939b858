"""Routing: which of several drafters drafts next for a session, by reports that may be out of date."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from specfleet.fleet.policies.own import with_own


class Affinity(msgspec.Struct, frozen=True, tag="affinity", tag_field="policy", forbid_unknown_fields=True):
    """A session keeps its drafter; new sessions are dealt to the drafters in turn, without a router."""


class RoundRobin(msgspec.Struct, frozen=True, tag="round-robin", tag_field="policy", forbid_unknown_fields=True):
    """Each drafter in turn, whatever its queue."""

    def choose(self, home: int | None, queues: Sequence[int], turn: int) -> int:
        """Return the number of the drafter."""
        return turn % len(queues)


class ShortestQueue(msgspec.Struct, frozen=True, tag="shortest-queue", tag_field="policy", forbid_unknown_fields=True):
    """The drafter with the fewest sessions, those sent since its report included; the own one among equals."""

    def choose(self, home: int | None, queues: Sequence[int], turn: int) -> int:
        """Return the number of the drafter."""
        return min(range(len(queues)), key=lambda i: (queues[i], i != home, i))


if TYPE_CHECKING:
    Routing = RoundRobin | ShortestQueue  # a router decides each round
    Route = Affinity | Routing
else:
    Routing = with_own("route", RoundRobin, ShortestQueue)
    Route = Affinity | Routing
