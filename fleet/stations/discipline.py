"""When a request may be served and where it stands in virtual time: rate limits and weights of a drafter's targets."""

from collections.abc import Sequence

from fleet.policies.order import Order, Weighted


class Discipline:
    """Stamps requests as they come. Stream t belongs to target t mod `targets`, or is its own where that is 0.

    `limits_per_s`: rounds a second that targets 1, 2, ... may ask for, 0 for any number; the last one holds for the
    rest.
    """

    def __init__(self, order: Order, limits_per_s: Sequence[float] = (), targets: int = 0) -> None:
        self.weights = order if isinstance(order, Weighted) else None
        self.limits_per_s = limits_per_s
        self.targets = targets
        self.limited = any(limit > 0 for limit in limits_per_s)
        self.plain = self.weights is None and not self.limited  # nothing to stamp
        self.allowed_s: dict[int, float] = {}  # when a limited target's next round may start
        self.ends: dict[int, float] = {}  # virtual time at which a target's last round ends
        self.now = 0.0  # virtual time: the start of what was served last

    def target_of(self, tag: int) -> int:
        """Number of the target that a stream belongs to."""
        return tag % self.targets if self.targets else tag

    def virtual_start(self, target: int) -> float:
        """Return where the target's next round stands in virtual time; see `Weighted`."""
        if self.weights is None:
            return 0.0
        start = max(self.ends.get(target, self.now), self.now - self.weights.credit)
        self.ends[target] = start + 1 / self.weights.weight(target)
        return start

    def not_before_s(self, target: int, now_s: float) -> float:
        """Return when the target's next round may start, and count it."""
        limit = self.limits_per_s[min(target, len(self.limits_per_s) - 1)] if self.limited else 0.0
        if limit <= 0:
            return 0.0
        allowed_s = max(now_s, self.allowed_s.get(target, 0.0))
        self.allowed_s[target] = allowed_s + 1 / limit
        return allowed_s

    def served(self, virtual_start: float) -> None:
        """Let virtual time go on to what is served now."""
        self.now = max(self.now, virtual_start)
