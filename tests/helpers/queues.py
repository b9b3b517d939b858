"""Queues with every statistic known in closed form: M/M/1 by Lindley's recursion, service of 1 s on average."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Queue(NamedTuple):
    """Requests of one run, in order: the end, the wait and the service time of each, in seconds."""

    ended_s: Floats
    wait_s: Floats
    service_s: Floats


def mm1(load: float, requests: int, rng: np.random.Generator) -> Queue:
    """M/M/1 at `load`, from empty. A wait is how far the walk of service minus gap is above its minimum so far."""
    gap_s, service_s = rng.exponential(1 / load, requests), rng.exponential(1.0, requests)
    walk_s = np.concatenate([[0.0], np.cumsum(service_s[:-1] - gap_s[1:])])
    wait_s = walk_s - np.minimum.accumulate(walk_s)
    return Queue(np.cumsum(gap_s) + wait_s + service_s, wait_s, service_s)


def mean_wait_s(load: float) -> float:
    """Mean wait of M/M/1."""
    return load / (1 - load) if load < 1 else math.inf


def sojourn_s(load: float, level: float) -> float:
    """Quantile of the time in M/M/1: it is exponential with rate 1 - load."""
    return -math.log(1 - level) / (1 - load) if load < 1 else math.inf
