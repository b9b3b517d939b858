"""AdaEDL: stop drafting where the drafter's entropy predicts rejection.

Agrawal et al. 2024, arXiv 2410.18351; DSDE's baseline. The rule reads the distribution that a token was sampled from,
never the token, so it does not bias acceptance. The token itself is still part of the draft.
"""

import math
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.allocate import LengthAllocation, Needs
from specfleet.fleet.policies.outcome import Outcome

# DSDE prints none of these; they are those of its authors' program.
GAMMA = 0.1  # per nat: weight of the entropy in the bound 1 - sqrt(gamma H)
FIRST_THRESHOLD = 0.5  # lambda at the beginning of a sequence
TARGET_SHARE = 0.9  # target share of accepted tokens
STEP = 0.01  # step of lambda after a verification, before smoothing
SHARE_MEMORY = 0.5  # weight of the past in the smoothed share of accepted tokens
THRESHOLD_MEMORY = 0.9  # weight of the past in the smoothed lambda


class Threshold(msgspec.Struct, frozen=True):
    """State of one sequence: lambda, and the smoothed share of accepted tokens."""

    threshold: float
    accepted_share: float


class AdaEdl(LengthAllocation, frozen=True, tag="adaedl", tag_field="policy", forbid_unknown_fields=True):
    """AdaEDL: draft up to `base` tokens, and stop after one with a bound 1 - sqrt(gamma H) below lambda.

    H is the entropy of the draft distribution, in nats. The threshold lambda follows the acceptance: it rises while the
    smoothed share of accepted tokens is below its target, and falls where it is above and all of `base` were accepted,
    as in Draft & Verify (Zhang et al. 2024).

    Keys:
        base (tokens): Maximum draft length; DSDE's figure 6 varies it.
    """

    base: Annotated[int, Meta(ge=1, le=4096)] = 7

    watches: ClassVar[bool] = True
    needs: ClassVar[Needs] = "signals"

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return self.base

    def start(self) -> Threshold:
        """Return the state of a new sequence."""
        return Threshold(FIRST_THRESHOLD, 0.0)

    def learn(self, state: Threshold, drafted: int, outcome: Outcome) -> Threshold:
        """Update lambda and the smoothed share by the outcome of the last draft."""
        if not drafted:
            return state
        share = SHARE_MEMORY * state.accepted_share + (1 - SHARE_MEMORY) * outcome.accepted / drafted
        moved = state.threshold
        if share < TARGET_SHARE:
            moved += STEP
        elif share > TARGET_SHARE and outcome.accepted == self.base:
            moved -= STEP
        return Threshold(THRESHOLD_MEMORY * state.threshold + (1 - THRESHOLD_MEMORY) * moved, share)

    def stops(self, state: Threshold, entropy: float) -> bool:
        """Return whether to stop after a token with that entropy."""
        return 1 - math.sqrt(GAMMA * entropy) < state.threshold
