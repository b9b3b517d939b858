"""Signals of one drafted token."""

from typing import NamedTuple


class Token(NamedTuple):
    """One drafted token: min(1, p/q), KL(p||q) in nats, the draft distribution's entropy in nats."""

    ratio: float
    kld: float = 0.0
    entropy: float = 0.0
