"""A log at a limited rate, so that strangers and broken peers cannot fill it."""

import math
from collections.abc import Callable

BURST, LINES_PER_S = 40, 0.2  # at once, and per second
REPEAT_S = 60.0  # between two times of the same line
MAX_LINES = 64  # distinct lines whose repeats are noticed


class RateLimitedLog:
    """Logs lines with `say`, at a limited rate. `dropped`: lines never logged; `left`: how many may be logged now."""

    def __init__(self, say: Callable[[str], None], now_s: float) -> None:
        self.say = say
        self.left, self.time_s = float(BURST), now_s
        self.logged_s: dict[str, float] = {}  # when each line was logged last
        self.dropped = 0

    def log(self, line: str, now_s: float) -> None:
        """Log a line; drop it if it is repeated within REPEAT_S or the rate is exceeded."""
        self.left = min(BURST, self.left + max(now_s - self.time_s, 0.0) * LINES_PER_S)
        self.time_s = now_s
        if self.left < 1.0 or now_s - self.logged_s.get(line, -math.inf) < REPEAT_S:
            self.dropped += 1
            return
        self.left -= 1.0
        self.logged_s.pop(line, None)
        if len(self.logged_s) >= MAX_LINES:
            del self.logged_s[next(iter(self.logged_s))]
        self.logged_s[line] = now_s
        self.say(line)
