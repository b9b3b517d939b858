"""Sessions in a drafter's key-value cache, and the prefills or transfers of missing ones."""

from collections.abc import Mapping

from fleet.scenario.scenario import Move
from fleet.stations.session import Session


class DraftCache:
    """Keeps the missing sessions by tag, to be prefilled or transferred from another drafter.

    - `move`: how a session comes from another drafter; a shared cache layer has it already.
    - `room`: capacity in tokens of context; the least recently served session is evicted, and prefilled again. 0 for
      no limit.
    """

    def __init__(self, move: Move = "prefill", room: int = 0) -> None:
        self.move = move
        self.room = room
        self.cold: set[int] = set()
        self.arriving: set[int] = set()  # those of the cold ones that are transferred
        self.served: dict[int, None] = {}  # tags in the cache, least recently served first

    def open(self, tag: int, moved: bool) -> None:
        """Add a session; `moved` if it comes from another drafter."""
        if moved and self.move == "shared":
            return
        self.cold.add(tag)
        if moved and self.move == "transfer":
            self.arriving.add(tag)

    def brought_in(self, tag: int) -> None:
        """Note that a session's prefix is in the cache."""
        self.cold.discard(tag)
        self.arriving.discard(tag)

    def release(self, tag: int) -> None:
        """Remove a session."""
        self.brought_in(tag)
        self.served.pop(tag, None)

    def missing(self, tags: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return which of `tags` need a prefill, and which a transfer."""
        cold = [tag for tag in tags if tag in self.cold]
        return tuple(tag for tag in cold if tag not in self.arriving), tuple(
            tag for tag in cold if tag in self.arriving
        )

    def make_room(self, tags: tuple[int, ...], sessions: Mapping[int, Session]) -> None:
        """Evict the least recently served sessions until those of `tags` fit."""
        for tag in tags:  # `served` is in order of service
            self.served.pop(tag, None)
            self.served[tag] = None
        for tag in list(self.served):
            cached_tokens = sum(sessions[other].base for other in self.served if other in sessions)
            if cached_tokens <= self.room or tag in tags:
                break
            del self.served[tag]
            if tag in sessions:
                self.cold.add(tag)
