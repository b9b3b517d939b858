"""Lines for whoever runs a node, said once: what happens again is counted, and said with its number after a while."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.net.token_bucket import full

LINES, LINES_PER_S = 40, 0.2  # that are said of who comes and goes: so many at once, and so many a second for ever
AGAIN_S = 60.0  # between two times that the same is said
DIFFERENT = 64  # lines that are remembered


@dataclass(slots=True)
class Said:
    """When a line was said last, and how often it should have been since."""

    at_s: float
    again: int = 0


class Notices:
    """Says lines through `say`; what strangers do must not fill a log. `unsaid`: how many were never said."""

    def __init__(self, say: Callable[[str], None], now_s: float) -> None:
        self.say = say
        self.lines = full(LINES, LINES_PER_S, now_s)
        self.said: dict[str, Said] = {}
        self.unsaid = 0

    def take(self, line: str, now_s: float, times: int = 1) -> None:
        """Say a line, which stands for so many, unless it was said of late, or there were many of late."""
        before = self.said.get(line)
        if before is not None and now_s - before.at_s < AGAIN_S:
            before.again += times
            return
        if not self.lines.spend(now_s):
            self.unsaid += times
            return
        self._say(line, times + (0 if before is None else before.again), now_s)

    def tick(self, now_s: float) -> None:
        """Say what has happened again since it was said, a while ago; forget what has not."""
        for line, said in list(self.said.items()):
            if now_s - said.at_s < AGAIN_S:
                continue
            del self.said[line]
            if said.again and self.lines.spend(now_s):
                self._say(line, said.again, now_s)
            else:
                self.unsaid += said.again

    def _say(self, line: str, times: int, now_s: float) -> None:
        self.say(f"{line} ({times} times)" if times > 1 else line)
        self.said.pop(line, None)
        if len(self.said) >= DIFFERENT:
            self.unsaid += self.said.pop(next(iter(self.said))).again
        self.said[line] = Said(now_s)
