"""Speculation length by load: a table by the number of requests that speculate, as vLLM's by batch size."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from msgspec import Meta

from fleet.policies.allocate import Length, LengthAllocation

Rows = Annotated[int, Meta(ge=1, le=10**9)]


class ByBatch(LengthAllocation, frozen=True, tag="by-batch", tag_field="policy", forbid_unknown_fields=True):
    """One length for all requests of a target: that of the last entry whose number of requests is reached.

    vLLM's `num_speculative_tokens_per_batch_size`. A length of 0 turns drafting off.

    Keys:
        table (requests, tokens): Pairs of a number of open requests, rising from 1, and the length from there on.
    """

    table: Annotated[tuple[tuple[Rows, Length], ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        firsts = [first for first, _ in self.table]
        if firsts[0] != 1 or any(low >= high for low, high in pairwise(firsts)):
            raise ValueError("a table by batch begins with 1 request, and its numbers of requests rise")

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return max(length for _, length in self.table)

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length for each state."""
        length = next((length for first, length in reversed(self.table) if first <= len(states)), 0)
        return [length] * len(states)
