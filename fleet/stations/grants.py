"""Speculation lengths of sessions: the states of an allocation policy, and the tokens of its budget in flight."""

from collections.abc import Collection

import numpy as np
from msgspec.structs import replace

from specfleet.fleet.policies.allocate import LengthAllocation
from specfleet.fleet.policies.continuous import Schedule
from specfleet.fleet.policies.outcome import Outcome


class Grants:
    """Keeps an allocation's states by tag, and the granted tokens in flight, which never exceed the budget.

    Lengths are computed for all open sessions at once. The requested ones are granted as far as the tokens in flight
    leave budget. At a barrier nothing else is in flight, and each session gets exactly its length.

    States of clients outlive a request (GoodSpeed, algorithm 1). A client that has just ended one keeps its share in
    the next grant, since its next request mostly begins during that round; under a rule for all clients, for ever.
    """

    def __init__(
        self, allocation: LengthAllocation, rng: np.random.Generator | None = None, queue: Collection[int] = ()
    ) -> None:
        self.allocation = allocation
        self.queue = queue  # tags of requests that wait to be admitted
        self.queued = 0  # requests that waited at a drafter elsewhere when it sent its last draft
        self.by_client = getattr(allocation, "by_client", False)  # rules of installed packages may lack it
        self.is_blind = getattr(allocation, "clients", 0) > 0
        self.chooses = getattr(allocation, "chooses", False)
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.states: dict[int, object] = {}  # of open sessions
        self.ended: dict[int, object] = {}  # of clients between two requests
        self.leaving: dict[int, object] = {}  # of those that ended one since the last grant
        self.out: dict[int, int] = {}

    def open(self, tag: int) -> None:
        """Begin a session, if it has not begun."""
        if tag not in self.states:
            self.states[tag] = self.ended.pop(tag) if tag in self.ended else self.allocation.start()
            self.leaving.pop(tag, None)

    def close(self, tag: int) -> None:
        """End a session; its tokens are no longer in flight."""
        if tag in self.states:
            state = self.states.pop(tag)
            if self.by_client:
                self.ended[tag] = self.leaving[tag] = state
        self.out.pop(tag, None)

    def withdraw(self, tag: int) -> None:
        """Return the grant of a draft that will not be verified to the budget."""
        self.out.pop(tag, None)

    def verified(self, tag: int, drafted: int, outcome: Outcome) -> None:
        """Update a session's state with the outcome, and return its grant to the budget."""
        self.out.pop(tag, None)
        self.states[tag] = self.allocation.learn(self.states[tag], drafted, outcome)

    def stops(self, tag: int, entropy: float) -> bool:
        """Return whether a draft of `tag` stops after a token with that entropy; most rules never stop."""
        return self.allocation.watches and self.allocation.stops(self.states[tag], entropy)

    def drew(self, tag: int, entropies: tuple[float, ...]) -> None:
        """Update a session's state with a draft of the drafter on its device."""
        if self.chooses:
            self.states[tag] = self.allocation.drew(self.states[tag], entropies)

    def chosen(self, step: Schedule) -> Schedule:
        """Return a step that verifies the chosen tokens of its drafts; their cache places stay reserved."""
        drafts = {share.tag: share.drafts for share in step.shares if share.drafts}
        if not self.chooses or not drafts:
            return step
        rows = sum(share.tokens == share.drafts + 1 for share in step.shares)
        states = [self.states[tag] for tag in drafts]
        kept = dict(zip(drafts, self.allocation.verified(states, list(drafts.values()), rows), strict=True))
        shares = [(share, kept.get(share.tag, 0)) for share in step.shares]
        cut = [replace(share, tokens=share.tokens - share.drafts + left, drafts=left) for share, left in shares]
        return replace(step, shares=tuple(cut))

    def grant(self, tags: list[int]) -> dict[int, int]:
        """Return the lengths of the next drafts of the open sessions in `tags`, and count them as in flight."""
        states = self.states | (self.ended if self.is_blind else self.leaving)
        self.leaving = {}
        everyone = sorted(states)
        seen = {"waiting": len(self.queue) + self.queued} if getattr(self.allocation, "sees_queue", False) else {}
        chosen = self.allocation.lengths([states[tag] for tag in everyone], self.rng, **seen)
        lengths = dict(zip(everyone, chosen, strict=True))
        granted: dict[int, int] = {}
        for tag in tags:
            if tag in self.states:
                left = self.allocation.budget - sum(self.out.values())
                granted[tag] = self.out[tag] = min(lengths[tag], max(left, 0))
        return granted
