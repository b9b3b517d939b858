"""Adaptive depth: the analytic model chooses the depth with the most predicted tokens a second.

Not in a paper; StarSD names it as future work. A drafter observes its steps, the targets' return times and their
acceptance, and puts the estimates into equations (5) to (10).
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from fleet.equations import rounds_per_s_per_target, service_s
from fleet.policies.goodspeed import expected_goodput

FIRST_DEPTH = 4  # depths until two have been timed; every other draft is one token longer
MEMORY = 0.05  # weight of the newest round in the smoothed estimates


class Observed(msgspec.Struct, frozen=True):
    """Running sums of a drafter's observations: draft steps (for S(d) = a + b d) and return times (for Z)."""

    steps: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0
    time_s: float = 0.0
    products: float = 0.0
    return_s: float = 0.0
    returns: int = 0

    def step(self, tokens: int, duration_s: float) -> "Observed":
        """Add a draft step."""
        return Observed(
            self.steps + 1, self.tokens + tokens, self.squares + tokens**2, self.time_s + duration_s,
            self.products + tokens * duration_s, self.return_s, self.returns,
        )  # fmt: skip

    def back(self, return_s: float) -> "Observed":
        """Add the time from the end of a draft to the target's next request."""
        keep = 1 - MEMORY if self.returns else 0.0
        smoothed = keep * self.return_s + (1 - keep) * return_s
        return msgspec.structs.replace(self, return_s=smoothed, returns=self.returns + 1)

    def line(self) -> tuple[float, float] | None:
        """Return a and b of S(d) by least squares; None before two depths were observed."""
        variance = self.steps * self.squares - self.tokens**2
        if variance <= 0:
            return None
        slope = max(0.0, (self.steps * self.products - self.tokens * self.time_s) / variance)
        return max(0.0, (self.time_s - slope * self.tokens) / self.steps), slope


class SmoothedAcceptance(msgspec.Struct, frozen=True):
    """Smoothed counts of one session: accepted tokens and tested tokens."""

    passed: float
    tested: float

    @property
    def rate(self) -> float:
        """Estimate of the acceptance rate."""
        return self.passed / self.tested


class AdaptiveDepth(msgspec.Struct, frozen=True, tag="adaptive", tag_field="policy", forbid_unknown_fields=True):
    """The depth that maximises (1 - beta^(d + 1)) / (1 - beta) over the round time of N targets, equation (10).

    beta is estimated for each session; the times and N for the drafter.

    Keys:
        most (tokens): Maximum depth.
    """

    most: Annotated[int, Meta(ge=1, le=4095)] = 16

    @property
    def longest(self) -> int:
        """Maximum depth."""
        return self.most

    def start(self) -> SmoothedAcceptance:
        """Return the state of a new session: a prior of seven accepted tokens in ten."""
        return SmoothedAcceptance(7.0, 10.0)

    def learn(self, state: SmoothedAcceptance, drafted: int, accepted: int) -> SmoothedAcceptance:
        """Return the state after a round; a rejected draft was tested up to its first mismatch."""
        keep = 1 - MEMORY
        return SmoothedAcceptance(keep * state.passed + accepted, keep * state.tested + min(drafted, accepted + 1))

    def depth(self, state: SmoothedAcceptance, observed: Observed, sessions: int) -> int:
        """Return the depth of the next draft, with `sessions` sessions at the drafter."""
        line = observed.line()
        if line is None or not observed.returns:
            shorter = max(min(FIRST_DEPTH, self.most - 1), 1)
            return min(shorter + int(observed.steps) % 2, self.most)

        def goodput(d: int) -> float:
            rounds = rounds_per_s_per_target(sessions, service_s(*line, d), observed.return_s)
            return expected_goodput(min(state.rate, 1.0), d) * rounds

        return max(range(1, self.most + 1), key=lambda d: (goodput(d), -d))
