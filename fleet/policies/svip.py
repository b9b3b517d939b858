"""SVIP: stop drafting after a token whose draft entropy is too high, by one threshold for all (Zhang et al. 2025).

arXiv 2411.18462. A bound of the acceptance probability falls with the root of the drafter's entropy, so the rule
compares that root with a threshold; unlike AdaEDL's it never moves.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from fleet.policies.allocate import Memoryless, Needs


class Svip(Memoryless, frozen=True, tag="svip", tag_field="policy", forbid_unknown_fields=True):
    """SVIP: draft up to `base` tokens, and stop after one with sqrt(H) above `threshold`.

    Keys:
        base (tokens): The longest draft.
        threshold (root of nats): The largest root of the draft distribution's entropy H after which drafting goes on.
    """

    base: Annotated[int, Meta(ge=1, le=4096)] = 16
    threshold: Annotated[float, Meta(gt=0, le=1e6)] = 1.0

    @property
    def needs(self) -> Needs:
        """What the acceptance model must know."""
        return "signals"

    @property
    def longest(self) -> int:
        """The longest draft that can come out."""
        return self.base

    @property
    def watches(self) -> bool:
        """Whether drafts are stopped token by token: yes."""
        return True

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length a sequence: the most that it may draft."""
        return [self.base] * len(states)

    def stops(self, state: None, entropy: float) -> bool:
        """Whether to stop after a token of a draft distribution with that entropy."""
        return math.sqrt(entropy) > self.threshold
