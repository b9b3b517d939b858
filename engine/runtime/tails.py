"""Drafts that a target has taken and not verified yet: one a round, or a tail that grows while it is drafted ahead."""

from collections.abc import Sequence

import msgspec
import numpy as np

from engine.runtime.content import NOTHING, Content
from fleet.policies.outcome import Outcome


class Tails:
    """Drafts by tag, in order. What a verification takes leaves the tail; what arrives meanwhile is its new beginning.

    So executor and station agree without counting: both saw the same drafts before the verification began, and the same
    ones until it ended.
    """

    def __init__(self) -> None:
        self.drafts: dict[int, list[Content]] = {}

    def append(self, tag: int, draft: Content) -> None:
        """Note a draft that continues the tail; an empty one does not."""
        if draft.tokens:
            self.drafts.setdefault(tag, []).append(draft)

    def take(self, tag: int) -> Content:
        """Take the whole tail as one draft."""
        return joined(self.drafts.pop(tag, []))

    def settled(self, tag: int, drafted: int, outcome: Outcome, token: int) -> Outcome:
        """Return the outcome of a verification of `drafted` tokens, once it is known what arrived meanwhile.

        After full acceptance the target's own `token` may be the one that the drafter went on with: then the rest of
        the tail stands, and the outcome says so (`matches`). Else it is forgotten.
        """
        arrived = self.drafts.pop(tag, [])
        if not arrived or outcome.accepted < drafted or list(arrived[0].tokens) != [token]:
            return outcome
        if arrived[1:]:
            self.drafts[tag] = arrived[1:]
        return msgspec.structs.replace(outcome, matches=True)

    def forget(self, tag: int) -> None:
        """Forget a tail."""
        self.drafts.pop(tag, None)


def joined(drafts: Sequence[Content]) -> Content:
    """Return drafts that continue each other as one; more than one are chains."""
    if len(drafts) <= 1:
        return drafts[0] if drafts else NOTHING
    tokens = [token for draft in drafts for token in draft.tokens]
    weights = [draft.distributions for draft in drafts if draft.distributions is not None]
    return Content(tokens, distributions=np.concatenate(weights) if weights else None, rule=drafts[0].rule)
