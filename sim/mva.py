"""Exact mean value analysis of closed queueing networks with one class of customers (Reiser and Lavenberg 1980)."""

from collections.abc import Sequence

import msgspec


class MeanValues(msgspec.Struct, frozen=True):
    """Exact means for N customers; the tuples have one entry a queueing station.

    `residence_s`: time at a station a visit cycle, waiting included. `queue_length`: customers there, on average.
    """

    throughput_per_s: float
    residence_s: tuple[float, ...]
    queue_length: tuple[float, ...]
    utilisation: tuple[float, ...]


def mean_value_analysis(N: int, demands_s: Sequence[float], think_s: float = 0.0) -> MeanValues:
    """Solve a network of queueing stations, one server each, and a pure delay.

    Exact for exponential service in order of arrival, and for any service under processor sharing. `demands_s[k]`: mean
    service a cycle at station k. `think_s`: the delay a cycle, of any distribution. A customer that arrives sees the
    network as it is with one customer less; from that, N follows from N - 1. Raises ValueError for times without a
    cycle: negative, or all zero.
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
