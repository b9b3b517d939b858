"""Waiting until a moment, to some microseconds: what a step without a model does."""

import os
import time
from collections.abc import Callable

from engine.runtime.clock import now_s

FIRST_MARGIN_S = 200e-6
LEAST_MARGIN_S, MOST_MARGIN_S = 50e-6, 500e-6  # nobody looks at the clock for longer, however late sleeps end
KEPT = 0.98  # of the margin after each sleep that ended early enough


class Margin:
    """How long before a moment a sleep has to end, because sleeps end late on this host; `s` is in seconds.

    It follows how late they really end: at once where one ends later, slowly where they end earlier.
    """

    def __init__(self) -> None:
        self.s = FIRST_MARGIN_S

    def slept(self, late_s: float) -> None:
        """Note by how much a sleep ended late."""
        self.s = min(max(late_s, self.s * KEPT, LEAST_MARGIN_S), MOST_MARGIN_S)


class Waiter:
    """Waits as long as asked: it sleeps, and for the last bit of time looks at the clock.

    Between two looks it lets other threads and processes have the core. `time.sleep(0)` would end 50 microseconds late
    on Linux, as any sleep does.
    """

    def __init__(
        self,
        now: Callable[[], float] = now_s,
        sleep: Callable[[float], None] = time.sleep,
        let_others: Callable[[], None] = os.sched_yield,
    ) -> None:
        self.now = now
        self.sleep = sleep
        self.let_others = let_others
        self.margin = Margin()

    def until(self, due_s: float) -> None:
        """Return at `due_s` by the engine's clock, or at once if that has passed."""
        while (left_s := due_s - self.now()) > 0:
            if left_s <= self.margin.s:
                self.let_others()
                continue
            woken_s = due_s - self.margin.s
            self.sleep(left_s - self.margin.s)
            self.margin.slept(self.now() - woken_s)
