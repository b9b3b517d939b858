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


def load_dependent_mva(N: int, service_s: float, speeds: Sequence[float], think_s: float) -> MeanValues:
    """Solve one queueing station whose speed depends on how many customers it holds, and a pure delay.

    `speeds[j - 1]`: work done a second with j customers there, in those of a single server (the last one beyond the
    list): 1, 2, .. M for M servers with one queue, which is M drafters behind a central router. Exact for exponential
    service; the delay may have any distribution. The recursion keeps the probabilities of all queue lengths (Reiser and
    Lavenberg 1980, section 5). Raises ValueError for times without a cycle.
    """
    if N < 1 or service_s <= 0 or think_s < 0 or not speeds or min(speeds) <= 0:
        raise ValueError(f"needs N >= 1, service > 0, delay >= 0 and speeds > 0, got {N=}, {service_s=}, {think_s=}")
    lengths = [1.0]  # P(j customers at the station), one entry more for each customer in the network
    throughput = residence_s = 0.0
    for customers in range(1, N + 1):
        served_s = [service_s / speeds[min(j, len(speeds)) - 1] for j in range(1, customers + 1)]
        residence_s = sum(j * s * p for j, (s, p) in enumerate(zip(served_s, lengths, strict=True), start=1))
        throughput = customers / (think_s + residence_s)
        longer = [throughput * s * p for s, p in zip(served_s, lengths, strict=True)]
        lengths = [max(0.0, 1 - sum(longer)), *longer]
    busy = 1 - lengths[0]
    return MeanValues(throughput, (residence_s,), (throughput * residence_s,), (busy,))
