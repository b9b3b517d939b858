"""What each session may draft next: the states of an allocation policy, and the tokens of its budget that are out."""

import numpy as np

from fleet.policies.allocate import Allocation
from fleet.policies.outcome import Outcome


class Grants:
    """Keeps an allocation's states by tag, and what is granted but not yet verified: a budget is never exceeded.

    Lengths are computed for all open sessions at once; those that are asked for get theirs, as far as the others,
    whose drafts are still out, leave room. At a barrier nobody else is out, and everyone gets exactly their length.
    """

    def __init__(self, allocation: Allocation, rng: np.random.Generator | None = None) -> None:
        self.allocation = allocation
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.states: dict[int, object] = {}
        self.out: dict[int, int] = {}

    def open(self, tag: int) -> None:
        """Begin a session."""
        self.states.setdefault(tag, self.allocation.start())

    def close(self, tag: int) -> None:
        """End a session; nothing of its is out any more."""
        self.states.pop(tag, None)
        self.out.pop(tag, None)

    def verified(self, tag: int, drafted: int, outcome: Outcome) -> None:
        """Note what came out of a session's draft, and take its grant back."""
        self.out.pop(tag, None)
        self.states[tag] = self.allocation.learn(self.states[tag], drafted, outcome)

    def stops(self, tag: int, entropy: float) -> bool:
        """Whether a draft of `tag` stops after a token of a distribution with that entropy; most rules never do."""
        return self.allocation.watches and self.allocation.stops(self.states[tag], entropy)

    def grant(self, tags: list[int]) -> dict[int, int]:
        """Return the lengths of the next drafts of those `tags` that are open, and count them as out."""
        everyone = sorted(self.states)
        lengths = dict(
            zip(everyone, self.allocation.lengths([self.states[tag] for tag in everyone], self.rng), strict=True)
        )
        granted: dict[int, int] = {}
        for tag in tags:
            if tag in lengths:
                left = self.allocation.budget - sum(self.out.values())
                granted[tag] = self.out[tag] = min(lengths[tag], max(left, 0))
        return granted
