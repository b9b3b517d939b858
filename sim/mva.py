"""Exact mean value analysis of closed queueing networks with one class of customers (Reiser and Lavenberg 1980)."""

from collections.abc import Sequence

import msgspec


class MeanValues(msgspec.Struct, frozen=True):
    """Exact means for N customers. The tuples have one entry per queueing station.

    Args:
        throughput_per_s: Cycles per second.
        residence_s: Time at a station per cycle, waiting included.
        queue_length: Mean number of customers at a station.
        utilisation: Share of time in which a station is busy.
    """

    throughput_per_s: float
    residence_s: tuple[float, ...]
    queue_length: tuple[float, ...]
    utilisation: tuple[float, ...]


def mean_value_analysis(N: int, demands_s: Sequence[float], think_s: float = 0.0) -> MeanValues:
    """Solve a network of single-server queueing stations and a pure delay.

    It is exact for exponential service in order of arrival, and for any service under processor sharing. An arriving
    customer sees the network as it is with one customer less, so N follows from N - 1.

    Args:
        N: Customers.
        demands_s: Mean service time per cycle at each station.
        think_s: Delay per cycle, of any distribution.

    Raises ValueError for negative times, or if all times are zero.
    """
    if N < 1 or min(demands_s, default=0.0) < 0 or think_s < 0 or sum(demands_s) + think_s <= 0:
        raise ValueError(f"needs N >= 1 and times that are not all zero, got N={N}, {demands_s=}, {think_s=}")
    queue_length = [0.0] * len(demands_s)
    throughput, residence_s = 0.0, list(demands_s)
    for customers in range(1, N + 1):
        residence_s = [demand * (1 + length) for demand, length in zip(demands_s, queue_length, strict=True)]
        throughput = customers / (think_s + sum(residence_s))
        queue_length = [throughput * residence for residence in residence_s]
    utilisation = tuple(throughput * demand for demand in demands_s)
    return MeanValues(throughput, tuple(residence_s), tuple(queue_length), utilisation)
