"""Speculation length by load: a table by the number of requests that speculate, as vLLM's by batch size."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from msgspec import Meta

from specfleet.fleet.policies.allocate import Length, LengthAllocation

Requests = Annotated[int, Meta(ge=1, le=10**9)]


class ByBatch(LengthAllocation, frozen=True, tag="by-batch", tag_field="policy", forbid_unknown_fields=True):
    """One length for all requests of a target, by their number: vLLM's `num_speculative_tokens_per_batch_size`.

    Keys:
        up_to (requests): Numbers of open requests, rising: the i-th length holds up to the i-th number.
        depths (tokens): The lengths, and one more for all larger numbers. 0 turns drafting off.
    """

    up_to: tuple[Requests, ...]
    depths: tuple[Length, ...]

    def __post_init__(self) -> None:
        if len(self.depths) != len(self.up_to) + 1 or any(low >= high for low, high in pairwise(self.up_to)):
            raise ValueError("by-batch: up_to rises, and depths has one entry more than up_to")

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return max(self.depths)

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length for each state."""
        place = sum(len(states) > most for most in self.up_to)
        return [self.depths[place]] * len(states)
