"""What a target says again to its drafter, because the request that said it first may have been lost."""

from fleet.scenario.settled import Fleet


class Resent:
    """Requests of each session that its drafter has not been heard to know, by epoch.

    Where every request waits for its draft, nothing is said twice: who hears nothing opens the session anew. A target
    that goes on by itself meanwhile (AMUSD's busy one) asks again and again, and each time says all that the drafter
    may have missed.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.asked: dict[int, dict[int, int]] = {}  # base of each request by epoch, by tag
        overlap = fleet.verifiers.overlap
        self.active = bool(getattr(overlap, "busy", False)) and fleet.verifiers.patience.patience_s > 0

    def tokens(self, tag: int, epoch: int, base: int, opening: bool) -> int:
        """Return how many of the last committed tokens a request says; of one that opens, all."""
        if opening:
            self.asked[tag] = {epoch: base}
            return base
        if not self.active:
            return 1
        asked = self.asked.setdefault(tag, {})
        since = min(asked.values(), default=base - 1)
        asked[epoch] = base
        return base - since

    def heard(self, tag: int, epoch: int) -> None:
        """Note that a draft has come which answers the request of that epoch."""
        if self.active and tag in self.asked:
            self.asked[tag] = {other: base for other, base in self.asked[tag].items() if other >= epoch}

    def forget(self, tag: int) -> None:
        """Forget a session."""
        self.asked.pop(tag, None)
