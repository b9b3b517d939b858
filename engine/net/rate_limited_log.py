"""Log lines of a node, rate-limited: repeated lines are counted, and logged with their number after a while."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.net.token_bucket import full

BURST, LINES_PER_S = 40, 0.2  # at once, and per second
REPEAT_S = 60.0  # between two times of the same line
MAX_LINES = 64  # distinct lines with counted repeats


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
