"""The control computation: always the same work, so that its time shows how fast this core is right now."""

import torch

from engine.decoding.telemetry import timed
from engine.runtime.clock import now_s
from engine.runtime.worker import Timing

SIDE, TIMES = 64, 4  # four small products: some 20 microseconds, within the first-level cache
TOUCHES = 2  # products before those: a large step leaves the caches so cold that the second is still half slower


class Control:
    """A fixed computation on the host's processor."""

    def __init__(self) -> None:
        self.factor = torch.full((SIDE, SIDE), 1 / SIDE)
        self.product = torch.empty_like(self.factor)

    def seconds(self) -> float:
        """Do the work once, and return its time in seconds; what it finds cold is touched before."""
        for _ in range(TOUCHES):
            torch.mm(self.factor, self.factor, out=self.product)
        started_s = now_s()
        for _ in range(TIMES):
            torch.mm(self.factor, self.factor, out=self.product)
        return now_s() - started_s


def timing_of(device: torch.device) -> Timing:
    """Return how steps are timed on a device; the host's pace matters only where the host computes them."""
    if device.type == "cpu":
        return Timing(lambda work: timed(work, device), Control().seconds)
    return Timing(lambda work: timed(work, device))
