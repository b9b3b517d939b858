"""The control computation: always the same work, so that its time shows how fast this core is right now."""

import math

import torch

from engine.decoding.telemetry import timed
from engine.net.clock import now_s
from engine.node.worker import Timing

SIDE, TIMES = 64, 4  # four small products: some 20 microseconds, within the first-level cache
TOUCHES = 2  # products before those: a large step leaves the caches so cold that the second is still half slower
EVERY_S = 0.04  # between two: they cost 70 microseconds each, and a mean of 25 a second is good to some per cent


class Control:
    """A fixed computation on the host's processor, taken right after steps, at most every `every_s` seconds."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.every_s = every_s
        self.taken_s = -math.inf
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

    def after_step_s(self) -> float:
        """Return the work's time in seconds where it is due; 0 where it was done a moment ago."""
        if now_s() - self.taken_s < self.every_s:
            return 0.0
        seconds = self.seconds()
        self.taken_s = now_s()
        return seconds


def timing_of(device: torch.device, every_s: float = EVERY_S) -> Timing:
    """Return how steps are timed on a device; the host's pace matters only where the host computes them.

    `every_s`: how often the control computation is due at most; 0 for each step, where several stations share it or
    each step is judged by the controls around it.
    """
    if device.type == "cpu":
        return Timing(control_s=Control(every_s).after_step_s)
    return Timing(lambda work: timed(work, device))
