"""Goals of each request: the table `[slo]`, and by how much a value misses a limit."""

from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

Limit = Annotated[float, Meta(gt=0, le=1e9)]
Value = TypeVar("Value", float, NDArray[np.float64])


class Slo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Goals of each request, as vLLM's `--goodput` and AIPerf's: a request is good if it meets all of them.

    Runs then have the metrics `goodput_requests_per_s` and `slo_attainment`.

    Keys:
        ttft_s: Maximum time from a request's arrival to its first token. Left out, there is no limit.
        tpot_s: Maximum mean time of each token after the first; a request of one token meets it. Left out, there is
            no limit.
        e2el_s: Maximum time from a request's arrival to its last token (end-to-end latency). Left out, there is no
            limit.
    """

    ttft_s: Limit | None = None
    tpot_s: Limit | None = None
    e2el_s: Limit | None = None

    @property
    def limits_s(self) -> dict[str, float]:
        """The limits by the metrics' names of request times: ttft, tpot, latency."""
        limits_s = {"ttft": self.ttft_s, "tpot": self.tpot_s, "latency": self.e2el_s}
        return {name: limit_s for name, limit_s in limits_s.items() if limit_s is not None}


def miss(value: Value, limit: float) -> Value:
    """Return the share by which a value exceeds a limit; negative or 0 if it meets it.

    >>> miss(1.5, 1.0)
    0.5
    """
    return value / limit - 1
