"""The clock of the engine, one for all processes of a host, and waits until a time to some microseconds.

Clocks of two hosts are never compared.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_MARGIN_S = 200e-6
MIN_MARGIN_S, MAX_MARGIN_S = 50e-6, 500e-6  # bounds of the time that a wait polls the clock
DECAY = 0.98  # of the margin, after each sleep that ended early enough

now_s = time.monotonic


class Margin:
    """How long before its due time a sleep is to end, because sleeps end late; `s` in seconds.

    It grows at once when a sleep ends later, and shrinks slowly.
    """

    def __init__(self) -> None:
        self.s = FIRST_MARGIN_S

    def slept(self, late_s: float) -> None:
        """Note by how much a sleep ended late."""
        self.s = min(max(late_s, self.s * DECAY, MIN_MARGIN_S), MAX_MARGIN_S)


@dataclass(eq=False)
class Waiter:
    """Sleeps until shortly before a time, and then polls the clock.

    Between two polls it yields the core. On Linux `time.sleep(0)` would end 50 microseconds late, as any sleep does.
    """

    now: Callable[[], float] = now_s
    sleep: Callable[[float], None] = time.sleep
    let_others: Callable[[], None] = os.sched_yield
    margin: Margin = field(default_factory=Margin)

    def until(self, due_s: float) -> None:
        """Return at `due_s`, or at once if that has passed."""
        while (left_s := due_s - self.now()) > 0:
            if left_s <= self.margin.s:
                self.let_others()
                continue
            woken_s = due_s - self.margin.s
            self.sleep(left_s - self.margin.s)
            self.margin.slept(self.now() - woken_s)
