"""What each request is to reach: the table `[slo]`, and by how much a value misses a limit."""

from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

Limit = Annotated[float, Meta(gt=0, le=1e9)]
Value = TypeVar("Value", float, NDArray[np.float64])


class Slo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Goals of each request, as vLLM's `--goodput` and AIPerf's take them: a request is good if it meets all of them.

    Runs then have the metrics `goodput_requests_per_s` and `slo_attainment`.

    Keys:
        ttft_s: The most from a request's arrival to its first token. Left out, any time will do.
        tpot_s: The most for each token after the first, on average over the request, which meets it if it has one token
            only. Left out, any time will do.
        e2el_s: The most from a request's arrival to its last token (end-to-end latency). Left out, any time will do.
    """

    ttft_s: Limit | None = None
    tpot_s: Limit | None = None
    e2el_s: Limit | None = None

    @property
    def limits_s(self) -> dict[str, float]:
        """The limits that are given, by the times of requests as metrics call them: ttft, tpot, latency."""
        limits_s = {"ttft": self.ttft_s, "tpot": self.tpot_s, "latency": self.e2el_s}
        return {name: limit_s for name, limit_s in limits_s.items() if limit_s is not None}


def miss(value: Value, limit: float) -> Value:
    """By which share a value is above a limit; negative or 0 where it meets it.

    >>> miss(1.5, 1.0)
    0.5
    """
    return value / limit - 1
