"""Limits on how often something may happen, at once and per second: token buckets, and a log with such a limit.

Repeated lines of the log are counted, and logged with their number after a while.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

BURST, LINES_PER_S = 40, 0.2  # at once, and per second
REPEAT_S = 60.0  # between two times of the same line
MAX_LINES = 64  # distinct lines with counted repeats

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class TokenBucket:
    """A bucket of at most `capacity` tokens, refilled at `per_s`. `left`: its tokens at `time_s`."""

    capacity: float
    per_s: float
    left: float
    time_s: float

    def spend(self, now_s: float) -> bool:
        """Take a token; False if there is none."""
        self.left = min(self.capacity, self.left + max(now_s - self.time_s, 0.0) * self.per_s)
        self.time_s = now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


def full(capacity: float, per_s: float, now_s: float) -> TokenBucket:
    """Return a full bucket."""
    return TokenBucket(capacity, per_s, capacity, now_s)


class TokenBuckets(Generic[Key]):
    """A bucket for each key, for at most `max_keys` of them; the oldest is dropped for a newer one."""

    def __init__(self, capacity: float, per_s: float, max_keys: int = 1 << 20) -> None:
        self.capacity, self.per_s, self.max_keys = capacity, per_s, max_keys
        self.by_key: dict[Key, TokenBucket] = {}

    def of(self, key: Key, now_s: float) -> TokenBucket:
        """Return the bucket of a key, a full one if it is new."""
        if key not in self.by_key:
            if len(self.by_key) >= self.max_keys:
                del self.by_key[next(iter(self.by_key))]
            self.by_key[key] = full(self.capacity, self.per_s, now_s)
        return self.by_key[key]

    def drop(self, key: Key) -> None:
        """Drop the bucket of a key."""
        self.by_key.pop(key, None)


@dataclass(slots=True)
class Logged:
    """When a line was logged last, and how often it was dropped since."""

    at_s: float
    repeats: int = 0


class RateLimitedLog:
    """Logs lines with `say`, at a limited rate, so that strangers cannot fill a log. `dropped`: lines never logged."""

    def __init__(self, say: Callable[[str], None], now_s: float) -> None:
        self.say = say
        self.bucket = full(BURST, LINES_PER_S, now_s)
        self.logged: dict[str, Logged] = {}
        self.dropped = 0

    def log(self, line: str, now_s: float) -> None:
        """Log a line, with a repeat count; drop it if it is repeated or the rate is exceeded."""
        before = self.logged.get(line)
        if before is not None and now_s - before.at_s < REPEAT_S:
            before.repeats += 1
            return
        if not self.bucket.spend(now_s):
            self.dropped += 1
            return
        self._log(line, 1 + (0 if before is None else before.repeats), now_s)

    def tick(self, now_s: float) -> None:
        """Log the lines that were repeated since REPEAT_S; forget the others."""
        for line, logged in list(self.logged.items()):
            if now_s - logged.at_s < REPEAT_S:
                continue
            del self.logged[line]
            if logged.repeats and self.bucket.spend(now_s):
                self._log(line, logged.repeats, now_s)
            else:
                self.dropped += logged.repeats

    def _log(self, line: str, times: int, now_s: float) -> None:
        self.say(f"{line} ({times} times)" if times > 1 else line)
        self.logged.pop(line, None)
        if len(self.logged) >= MAX_LINES:
            self.dropped += self.logged.pop(next(iter(self.logged))).repeats
        self.logged[line] = Logged(now_s)
