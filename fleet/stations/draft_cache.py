"""Which sessions a drafter has in its key-value cache, and what it takes to bring one in."""

from collections.abc import Mapping

from fleet.scenario.scenario import Move
from fleet.stations.session import Session


class DraftCache:
    """Keeps what is cold by tag: sessions whose prefix must be prefilled, or transferred from another drafter.

    `move`: how a session comes from another drafter; a shared cache layer has it already. `room`: tokens of context
    that fit; whoever was served longest ago is evicted for others, and prefilled again. 0 for any number.
    """

    def __init__(self, move: Move = "prefill", room: int = 0) -> None:
        self.move = move
        self.room = room
        self.cold: set[int] = set()
        self.arriving: set[int] = set()  # those of the cold ones that are transferred
        self.served: dict[int, None] = {}  # tags in the cache, the one served longest ago first

    def open(self, tag: int, moved: bool) -> None:
        """Note a session that begins here; `moved` if it comes from another drafter."""
        if moved and self.move == "shared":
            return
        self.cold.add(tag)
        if moved and self.move == "transfer":
            self.arriving.add(tag)

    def brought_in(self, tag: int) -> None:
        """Note that a session's prefix is in the cache now."""
        self.cold.discard(tag)
        self.arriving.discard(tag)

    def release(self, tag: int) -> None:
        """Forget a session."""
        self.brought_in(tag)
        self.served.pop(tag, None)

    def missing(self, tags: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return which of `tags` must be prefilled, and which transferred."""
        cold = [tag for tag in tags if tag in self.cold]
        return tuple(tag for tag in cold if tag not in self.arriving), tuple(
            tag for tag in cold if tag in self.arriving
        )

    def make_room(self, tags: tuple[int, ...], sessions: Mapping[int, Session]) -> None:
        """Evict the sessions that were served longest ago, until those of `tags` fit."""
        for tag in tags:  # the order of `served` is that of service
            self.served.pop(tag, None)
            self.served[tag] = None
        for tag in list(self.served):
            held = sum(sessions[other].base for other in self.served if other in sessions)
            if held <= self.room or tag in tags:
                break
            del self.served[tag]
            if tag in sessions:
                self.cold.add(tag)
