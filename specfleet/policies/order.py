"""Which waiting request is served next."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Waiting(Protocol):
    """What an order may look at; arrivals are listed oldest first."""

    @property
    def priority(self) -> int: ...  # noqa: D102  (a larger number is more urgent)


class Fifo(msgspec.Struct, frozen=True, tag="fifo", tag_field="policy", forbid_unknown_fields=True):
    """First in, first out: the order of StarSD's global request buffer (appendix E.2)."""

    def pick(self, waiting: Sequence[Waiting]) -> int:  # noqa: ARG002  (one signature for all orders)
        """Index of the request to serve next."""
        return 0


class Priority(msgspec.Struct, frozen=True, tag="priority", tag_field="policy", forbid_unknown_fields=True):
    """The most urgent first; first in, first out among equals."""

    def pick(self, waiting: Sequence[Waiting]) -> int:
        """Index of the request to serve next."""
        return max(range(len(waiting)), key=lambda index: (waiting[index].priority, -index))


Order = Fifo | Priority
