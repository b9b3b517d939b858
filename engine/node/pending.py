"""State of a target about its drafters: drafts that it has not verified yet, and requests that may be lost."""

from collections.abc import Sequence

import msgspec
import numpy as np

from specfleet.engine.net.content import NOTHING, Content, padded
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Overdue, StationEvent


class PendingDrafts:
    """Drafts that are not verified yet, by tag, in order; several of a tag while its drafter drafts ahead.

    A verification takes all drafts of a tag. Drafts that arrive during it are the next ones. So executor and station
    agree on the drafts, both when the verification begins and when it ends.

    `repeats`: whether a request repeats the tokens of earlier ones that no draft has answered.
    """

    def __init__(self, repeats: bool = False) -> None:
        self.drafts: dict[int, list[Content]] = {}
        self.repeats = repeats
        self.unanswered: dict[int, dict[int, int]] = {}  # base of each request by epoch, by tag

    def receive(self, event: StationEvent, content: Content) -> None:
        """Take a draft, unless it is empty; drop those of a tag after a timeout."""
        if isinstance(event, Draft):
            if content.tokens:
                self.drafts.setdefault(event.tag, []).append(content)
            if self.repeats and event.tag in self.unanswered:
                bases = self.unanswered[event.tag]
                self.unanswered[event.tag] = {epoch: base for epoch, base in bases.items() if epoch >= event.epoch}
        elif isinstance(event, Overdue):
            self.drafts.pop(event.tag, None)

    def put(self, tag: int, content: Content) -> None:
        """Keep a draft of this device, unless it is empty."""
        if content.tokens:
            self.drafts[tag] = [content]

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

    def tokens_sent(self, request: DraftRequest) -> int:
        """Return how many of the last committed tokens a request contains; all if it opens its session."""
        base = request.base
        if request.opening:
            self.unanswered[request.tag] = {request.epoch: base}
            return base
        if not self.repeats:
            return 1
        unanswered = self.unanswered.setdefault(request.tag, {})
        since = min(unanswered.values(), default=base - 1)
        unanswered[request.epoch] = base
        return base - since

    def forget(self, tag: int) -> None:
        """Drop a session."""
        self.drafts.pop(tag, None)
        self.unanswered.pop(tag, None)


def repeats(fleet: Fleet) -> bool:
    """Whether requests of a target repeat the tokens of those before them that no draft has answered.

    It is needed only if a target sends further requests without waiting for a draft (AMUSD, `busy`). Other targets open
    the session again after a timeout.
    """
    return bool(getattr(fleet.verifiers.overlap, "busy", False)) and fleet.verifiers.patience.patience_s > 0


def joined(drafts: Sequence[Content]) -> Content:
    """Return consecutive drafts as one; if there are several, they are chains."""
    if len(drafts) <= 1:
        return drafts[0] if drafts else NOTHING
    tokens = [token for draft in drafts for token in draft.tokens]
    weights = [draft.distributions for draft in drafts if draft.distributions is not None]
    width = max((rows.shape[1] for rows in weights), default=0)
    whole = np.concatenate([padded(rows, len(rows), width) for rows in weights]) if weights else None
    return Content(tokens, distributions=whole, rule=drafts[0].rule)
