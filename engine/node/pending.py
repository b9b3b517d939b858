"""State of a target about its drafters: drafts that it has not verified yet, and requests that may be lost."""

from collections.abc import Sequence

import msgspec
import numpy as np

from engine.net.content import NOTHING, Content
from fleet.policies.outcome import Outcome
from fleet.scenario.resolved import Fleet
from fleet.stations.messages import DraftRequest


class PendingDrafts:
    """Drafts that are not verified yet, by tag, in order; several of a tag while its drafter drafts ahead.

    A verification takes all drafts of a tag. Drafts that arrive during it are the next ones. So executor and station
    agree on the drafts, both when the verification begins and when it ends.
    """

    def __init__(self) -> None:
        self.drafts: dict[int, list[Content]] = {}

    def append(self, tag: int, draft: Content) -> None:
        """Add a draft, unless it is empty."""
        if draft.tokens:
            self.drafts.setdefault(tag, []).append(draft)

    def take(self, tag: int) -> Content:
        """Remove all drafts of a tag, and return them as one."""
        return joined(self.drafts.pop(tag, []))

    def resolved(self, tag: int, drafted: int, outcome: Outcome, token: int) -> Outcome:
        """Return the outcome of a verification of `drafted` tokens, given the drafts that arrived during it.

        After full acceptance the drafter may have gone on with the target's own `token`: then those drafts stay, and
        the outcome `matches`. Else they are dropped.
        """
        arrived = self.drafts.pop(tag, [])
        if not arrived or outcome.accepted < drafted or list(arrived[0].tokens) != [token]:
            return outcome
        if arrived[1:]:
            self.drafts[tag] = arrived[1:]
        return msgspec.structs.replace(outcome, matches=True)

    def forget(self, tag: int) -> None:
        """Drop the drafts of a tag."""
        self.drafts.pop(tag, None)


def joined(drafts: Sequence[Content]) -> Content:
    """Return consecutive drafts as one; if there are several, they are chains."""
    if len(drafts) <= 1:
        return drafts[0] if drafts else NOTHING
    tokens = [token for draft in drafts for token in draft.tokens]
    weights = [draft.distributions for draft in drafts if draft.distributions is not None]
    return Content(tokens, distributions=np.concatenate(weights) if weights else None, rule=drafts[0].rule)


class Retransmit:
    """Requests of each session that no draft has answered yet, by epoch.

    It is needed only if a target sends further requests without waiting for a draft (AMUSD, `busy`). Each of them then
    repeats the tokens of those before it. Other targets open the session again after a timeout.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.unanswered: dict[int, dict[int, int]] = {}  # base of each request by epoch, by tag
        overlap = fleet.verifiers.overlap
        self.active = bool(getattr(overlap, "busy", False)) and fleet.verifiers.patience.patience_s > 0

    def tokens(self, request: DraftRequest) -> int:
        """Return how many of the last committed tokens a request contains; all if it opens its session."""
        base = request.base
        if request.opening:
            self.unanswered[request.tag] = {request.epoch: base}
            return base
        if not self.active:
            return 1
        unanswered = self.unanswered.setdefault(request.tag, {})
        since = min(unanswered.values(), default=base - 1)
        unanswered[request.epoch] = base
        return base - since

    def acknowledge(self, tag: int, epoch: int) -> None:
        """Note a draft that answers the request of that epoch."""
        if self.active and tag in self.unanswered:
            self.unanswered[tag] = {other: base for other, base in self.unanswered[tag].items() if other >= epoch}

    def forget(self, tag: int) -> None:
        """Drop a session."""
        self.unanswered.pop(tag, None)
