"""The result of a step for one session, and the signals of a drafted token, for policies, models and messages."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class Token(NamedTuple):
    """One drafted token: min(1, p/q), KL(p||q) in nats, the draft distribution's entropy in nats."""

    ratio: float
    kld: float = 0.0
    entropy: float = 0.0


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """Result of a step for one member.

    - `accepted`: draft tokens that passed verification.
    - `matches`: all passed, and the target's own token equals the next one of the tail, which stays valid (AMUSD).
    - `drafted`: levels of a draft that a stop rule cut short, or for which lookup found less; negative: as planned.
    - `ratio`: mean of min(1, p/q) over the drafted tokens; 0 if unknown.
    - `klds`: KL(p||q) of each drafted token, in nats; none if unknown.
    - `found`: whether a draft was found in the text, where others are of a model or head (`drafters.first`).
    - `entropies`: of each draft token's distribution, in nats, for a rule that chooses what is verified; else none.
    """

    accepted: int = 0
    matches: bool = False
    drafted: int = -1
    ratio: float = 0.0
    klds: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    found: bool = False

    def with_signals(self, tokens: Sequence[Token]) -> "Outcome":
        """Return the outcome of a verification with the signals of these draft tokens, if there are any."""
        if not tokens:
            return self
        ratio = sum(token.ratio for token in tokens) / len(tokens)
        return msgspec.structs.replace(self, ratio=ratio, klds=tuple([token.kld for token in tokens]))
