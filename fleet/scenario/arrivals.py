"""Requests that come by themselves: at random, in bursts, or as recorded."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

Rate = Annotated[float, Meta(gt=0, le=1e9)]


class Poisson(msgspec.Struct, frozen=True, tag="poisson", tag_field="process", forbid_unknown_fields=True):
    """Requests, or first turns of conversations, come by themselves at random times.

    Keys:
        per_s (requests/s): How many come in a second, on average; the gaps between them are exponential.
    """

    per_s: Rate


class Gamma(msgspec.Struct, frozen=True, tag="gamma", tag_field="process", forbid_unknown_fields=True):
    """Requests, or first turns of conversations, come by themselves; the gaps between them have a gamma distribution.

    Keys:
        per_s (requests/s): How many come in a second, on average.
        burstiness (factor): Shape of the gaps' distribution, as vLLM's `--burstiness`: 1 is Poisson, below 1 requests
            come in bursts, above 1 more evenly. The gaps' squared coefficient of variation is 1 / burstiness.
    """

    per_s: Rate
    burstiness: Annotated[float, Meta(gt=0, le=1e6)] = 1.0

    def openings_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield when requests come, without end."""
        count = 0.0
        while True:
            count += float(rng.gamma(self.burstiness, 1 / self.burstiness))
            yield count / self.per_s


class Trace(msgspec.Struct, frozen=True, tag="trace", tag_field="process", forbid_unknown_fields=True):
    """Requests come at the times, and with the lengths, of a recorded trace.

    Keys:
        file: A CSV file with the columns arrived_at (seconds), num_prefill_tokens and num_decode_tokens, found relative
            to the scenario's folder.
    """

    file: str
