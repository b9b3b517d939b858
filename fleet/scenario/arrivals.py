"""Open-loop arrivals: Poisson, bursty, or recorded."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

Rate = Annotated[float, Meta(gt=0, le=1e9)]


class Poisson(msgspec.Struct, frozen=True, tag="poisson", tag_field="process", forbid_unknown_fields=True):
    """Requests arrive as a Poisson process.

    Keys:
        per_s (requests/s): Mean arrival rate, of conversations where there are some; the gaps are exponential.
    """

    per_s: Rate


class Gamma(msgspec.Struct, frozen=True, tag="gamma", tag_field="process", forbid_unknown_fields=True):
    """Requests arrive with gamma-distributed gaps.

    Keys:
        per_s (requests/s): Mean arrival rate, of conversations where there are some.
        burstiness (factor): Shape of the gaps' distribution, as vLLM's `--burstiness`: 1 is Poisson, below 1 is
            burstier, above 1 is more even. The gaps' squared coefficient of variation is 1 / burstiness.
    """

    per_s: Rate
    burstiness: Annotated[float, Meta(gt=0, le=1e6)] = 1.0

    def openings_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrival times without end."""
        count = 0.0
        while True:
            count += float(rng.gamma(self.burstiness, 1 / self.burstiness))
            yield count / self.per_s


class Trace(msgspec.Struct, frozen=True, tag="trace", tag_field="process", forbid_unknown_fields=True):
    """Requests arrive at the times, and with the lengths, of a recorded trace.

    Keys:
        file: A CSV file with the columns arrived_at (seconds), num_prefill_tokens and num_decode_tokens, or a trace as
            Mooncake, Azure or BurstGPT publish them (docs/loads.md), relative to the scenario's folder. The first
            request arrives at 0.
        id_tokens (tokens): Tokens of a prompt that one of the trace's hash_ids names, for `verifiers.prefix_cache`:
            512 in Mooncake's. `verifiers.kv_block_size` divides it.
    """

    file: str
    id_tokens: Annotated[int, Meta(ge=1, le=10**6)] = 512
