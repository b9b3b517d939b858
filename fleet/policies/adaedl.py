"""AdaEDL: stop drafting where the drafter's entropy says that a token will hardly be accepted.

Agrawal et al. 2024, arXiv 2410.18351, which DSDE compares with. The rule looks at the distribution that a token was
sampled from, never at the token, so it cannot bias what is accepted; the token itself is still part of the draft.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fleet.policies.allocate import Needs, Rule
from fleet.policies.outcome import Outcome

Share = Annotated[float, Meta(ge=0, le=1)]


class Threshold(msgspec.Struct, frozen=True):
    """State of one sequence: lambda, and the smoothed share of accepted tokens."""

    threshold: float
    accepted_share: float


class AdaEdl(Rule, frozen=True, tag="adaedl", tag_field="policy", forbid_unknown_fields=True):
    """AdaEDL: draft up to `base` tokens, and stop after one whose bound 1 - sqrt(gamma H) lies below lambda.

    H is the entropy of the draft distribution, in nats. The threshold lambda follows the acceptance: it rises while the
    smoothed share of accepted tokens is below `target`, and falls while it is above, as in Draft & Verify (Zhang et al.
    2024).

    Keys:
        base (tokens): The longest draft.
        gamma (1/nat): `gamma`, weight of the entropy in the bound 1 - sqrt(gamma H) of the acceptance probability.
        threshold (share): `lambda`, the threshold at the beginning of a sequence.
        target (share): The share of accepted tokens that lambda steers to; the smoothed share begins there.
        step (share): How far lambda moves after a verification, before smoothing.
        share_memory (share): Weight of the past in the smoothed share of accepted tokens.
        threshold_memory (share): Weight of the past in the smoothed lambda.
    """

    base: Annotated[int, Meta(ge=1, le=4096)] = 7
    gamma: Annotated[float, Meta(gt=0, le=1e6)] = 0.2
    threshold: Share = 0.4
    target: Share = 0.9
    step: Share = 0.01
    share_memory: Share = 0.5
    threshold_memory: Share = 0.9

    @property
    def watches(self) -> bool:
        """Whether drafts are stopped token by token: yes."""
        return True

    @property
    def needs(self) -> Needs:
        """What the acceptance model must know."""
        return "signals"

    @property
    def longest(self) -> int:
        """The longest draft that can come out."""
        return self.base

    def start(self) -> Threshold:
        """Return the state of a new sequence."""
        return Threshold(self.threshold, self.target)

    def learn(self, state: Threshold, drafted: int, outcome: Outcome) -> Threshold:
        """Move lambda by what the last draft came to."""
        if not drafted:
            return state
        m = self.share_memory
        share = m * state.accepted_share + (1 - m) * outcome.accepted / drafted
        moved = state.threshold + (self.step if share < self.target else -self.step)
        keep = self.threshold_memory
        return Threshold(min(max(keep * state.threshold + (1 - keep) * moved, 0.0), 1.0), share)

    def lengths(self, states: Sequence[Threshold], rng: np.random.Generator) -> list[int]:
        """Return one length a sequence: the most that it may draft."""
        return [self.base] * len(states)

    def stops(self, state: Threshold, entropy: float) -> bool:
        """Whether to stop after a token of a draft distribution with that entropy."""
        return 1 - math.sqrt(self.gamma * entropy) < state.threshold
