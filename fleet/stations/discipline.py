"""Rate limits and virtual times of a drafter's targets."""

from specfleet.fleet.policies.order import Order, Weighted, rate_limits


class Discipline:
    """Stamps requests on arrival. Stream t belongs to target t mod `targets`, or is its own target if that is 0."""

    def __init__(self, order: Order, targets: int = 0) -> None:
        self.weights = order if isinstance(order, Weighted) else None
        self.limits_per_s = rate_limits(order)
        self.targets = targets
        self.limited = bool(self.limits_per_s)
        self.plain = self.weights is None and not self.limited  # nothing to stamp
        self.allowed_s: dict[int, float] = {}  # earliest start of a limited target's next round
        self.ends: dict[int, float] = {}  # virtual time at which a target's last round ends
        self.now = 0.0  # virtual time: the start of the last served request

    def target_of(self, tag: int) -> int:
        """Return the number of a stream's target."""
        return tag % self.targets if self.targets else tag

    def virtual_start(self, target: int) -> float:
        """Return the start of the target's next round in virtual time; see `Weighted`."""
        if self.weights is None:
            return 0.0
        start = max(self.ends.get(target, self.now), self.now - self.weights.credit)
        self.ends[target] = start + 1 / self.weights.weight(target)
        return start

    def not_before_s(self, target: int, now_s: float) -> float:
        """Return the earliest start of the target's next round, and count the round."""
        limit = self.limits_per_s[min(target, len(self.limits_per_s) - 1)] if self.limited else 0.0
        if limit <= 0:
            return 0.0
        allowed_s = max(now_s, self.allowed_s.get(target, 0.0))
        self.allowed_s[target] = allowed_s + 1 / limit
        return allowed_s

    def served(self, virtual_start: float) -> None:
        """Advance virtual time to the served request."""
        self.now = max(self.now, virtual_start)
