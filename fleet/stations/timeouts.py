"""A target's timeouts: waits for drafts, drafters that were given up, and retries."""

import math

from specfleet.fleet.scenario.resolved import Patience


class Silence:
    """Keeps these times by tag. Streams are dealt to `drafters` drafters in turn."""

    def __init__(self, patience: Patience, drafters: int) -> None:
        self.patience = patience
        self.drafters = drafters
        self.asked_s: dict[int, float] = {}  # start of a session's wait for a draft
        self.retry_s: dict[int, float] = {}  # next retry of a session that gave up its drafter
        self.retried: dict[int, int] = {}  # epoch of a session's first retry
        self.silent_s: dict[int, float] = {}  # the same by drafter, until it drafts again
        self.returning: set[int] = set()  # sessions that return to their drafter when their running step ends

    def waits(self, tag: int, now_s: float) -> None:
        """Note that a session waits for a draft, from now on unless it already does."""
        if self.patience.patience_s:
            self.asked_s.setdefault(tag, now_s)

    def waits_no_more(self, tag: int) -> None:
        """Note that a session waits for no draft."""
        self.asked_s.pop(tag, None)

    def heard(self, tag: int) -> None:
        """Note that a session's drafter has answered."""
        self.waits_no_more(tag)
        if self.silent_s:
            self.silent_s.pop(tag % self.drafters, None)

    def give_up(self, tag: int, now_s: float) -> None:
        """Note that a session's drafter does not answer."""
        self.asked_s.pop(tag, None)
        self.retry_s[tag] = self.silent_s[tag % self.drafters] = now_s + self.patience.rejoin_s

    def asks_again(self, tag: int, epoch: int, now_s: float) -> None:
        """Note a retry of a session; another follows if it fails."""
        self.retry_s[tag] = now_s + self.patience.rejoin_s
        self.retried.setdefault(tag, epoch)

    def has_retried(self, tag: int, epoch: int) -> bool:
        """Return whether a session that gave up its drafter has retried it in that epoch or before."""
        return tag in self.retried and self.retried[tag] <= epoch

    def goes_back(self, tag: int) -> None:
        """Note that a session returns to its drafter when its running step ends."""
        self.forget(tag)
        self.returning.add(tag)

    def begins_alone(self, tag: int) -> bool:
        """Return whether a new session's drafter has been given up, so that the session starts alone."""
        retry_s = self.silent_s.get(tag % self.drafters)
        if retry_s is None:
            return False
        self.retry_s[tag] = retry_s
        return True

    def forget(self, tag: int) -> None:
        """Remove a session."""
        self.asked_s.pop(tag, None)
        self.retry_s.pop(tag, None)
        self.retried.pop(tag, None)
        self.returning.discard(tag)

    def alarm_s(self) -> float:
        """Time of the next draft timeout or retry."""
        overdue_s = min(self.asked_s.values(), default=math.inf) + self.patience.patience_s
        return min(overdue_s, *self.retry_s.values(), math.inf)

    def overdue(self, now_s: float) -> list[int]:
        """Return the tags of the sessions whose drafts timed out."""
        return [tag for tag, asked_s in self.asked_s.items() if asked_s + self.patience.patience_s <= now_s]

    def retries(self, now_s: float) -> list[int]:
        """Return the tags of the sessions with a retry due."""
        return [tag for tag, retry_s in self.retry_s.items() if retry_s <= now_s]
