"""What a target knows of drafters that do not answer: since when it waits, whom it gave up, when it asks again."""

import math

from fleet.policies.liveness import Patience


class Silence:
    """Keeps these times by tag. Streams are dealt to `drafters` drafters in turn."""

    def __init__(self, patience: Patience, drafters: int) -> None:
        self.patience = patience
        self.drafters = drafters
        self.asked_s: dict[int, float] = {}  # since when a session waits for a draft
        self.retry_s: dict[int, float] = {}  # when a session asks its drafter again, which it has given up
        self.silent_s: dict[int, float] = {}  # the same by drafter, until one of its drafts comes
        self.returning: set[int] = set()  # sessions that go back to their drafter when their running step ends

    def waits(self, tag: int, now_s: float) -> None:
        """Note that a session waits for a draft, from now on unless it did before."""
        if self.patience.patience_s:
            self.asked_s.setdefault(tag, now_s)

    def heard(self, tag: int) -> None:
        """Note that a session's drafter has answered."""
        self.asked_s.pop(tag, None)
        if self.silent_s:
            self.silent_s.pop(tag % self.drafters, None)

    def give_up(self, tag: int, now_s: float) -> None:
        """Note that a session's drafter does not answer."""
        self.asked_s.pop(tag, None)
        self.retry_s[tag] = self.silent_s[tag % self.drafters] = self.patience.retry_s(now_s)

    def asks_again(self, tag: int, now_s: float) -> None:
        """Note that a session asks its drafter again; if that was in vain, it does so once more."""
        self.retry_s[tag] = self.patience.retry_s(now_s)

    def goes_back(self, tag: int) -> None:
        """Note that a session goes back to its drafter when its running step ends."""
        self.forget(tag)
        self.returning.add(tag)

    def begins_alone(self, tag: int) -> bool:
        """Whether the drafter of a new session has been given up: the session need not find that out by itself."""
        retry_s = self.silent_s.get(tag % self.drafters)
        if retry_s is None:
            return False
        self.retry_s[tag] = retry_s
        return True

    def forget(self, tag: int) -> None:
        """Forget a session."""
        self.asked_s.pop(tag, None)
        self.retry_s.pop(tag, None)
        self.returning.discard(tag)

    def alarm_s(self) -> float:
        """When a draft is overdue, or a drafter is to be asked again."""
        overdue_s = self.patience.overdue_s(min(self.asked_s.values(), default=math.inf))
        return min(overdue_s, *self.retry_s.values(), math.inf)

    def overdue(self, now_s: float) -> list[int]:
        """Tags of the sessions whose drafts are overdue."""
        return [tag for tag, asked_s in self.asked_s.items() if self.patience.overdue_s(asked_s) <= now_s]

    def retries(self, now_s: float) -> list[int]:
        """Tags of the sessions that are to ask their drafters again."""
        return [tag for tag, retry_s in self.retry_s.items() if retry_s <= now_s]
