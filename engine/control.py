"""The control computation: always the same work, so that its time tells how fast this core is right now."""

import torch

from engine.clock import now_s

SIDE, TIMES = 64, 4  # four small products: some 40 microseconds, within the first-level cache


class Control:
    """A fixed computation on the host's processor."""

    def __init__(self) -> None:
        self.factor = torch.full((SIDE, SIDE), 1 / SIDE)
        self.product = torch.empty_like(self.factor)

    def seconds(self) -> float:
        """Do the work once, and return its time in seconds; what it finds cold is touched before."""
        torch.mm(self.factor, self.factor, out=self.product)
        started_s = now_s()
        for _ in range(TIMES):
            torch.mm(self.factor, self.factor, out=self.product)
        return now_s() - started_s
