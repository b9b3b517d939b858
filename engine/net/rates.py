"""Limits on how often something may happen, at once and per second: token buckets, and a log with such a limit."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

BURST, LINES_PER_S = 40, 0.2  # at once, and per second
REPEAT_S = 60.0  # between two times of the same line
MAX_LINES = 64  # distinct lines whose repeats are noticed

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


class RateLimitedLog:
    """Logs lines with `say`, at a limited rate, so that strangers cannot fill a log. `dropped`: lines never logged."""

    def __init__(self, say: Callable[[str], None], now_s: float) -> None:
        self.say = say
        self.bucket = full(BURST, LINES_PER_S, now_s)
        self.logged_s: dict[str, float] = {}  # when each line was logged last
        self.dropped = 0

    def log(self, line: str, now_s: float) -> None:
        """Log a line; drop it if it is repeated within REPEAT_S or the rate is exceeded."""
        if now_s - self.logged_s.get(line, -math.inf) < REPEAT_S or not self.bucket.spend(now_s):
            self.dropped += 1
            return
        self.logged_s.pop(line, None)
        if len(self.logged_s) >= MAX_LINES:
            del self.logged_s[next(iter(self.logged_s))]
        self.logged_s[line] = now_s
        self.say(line)
