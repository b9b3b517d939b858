"""Timeouts of drafts and of retries."""

import msgspec


class Patience(msgspec.Struct, frozen=True):
    """A target's timeouts.

    - `patience_s`: timeout of a draft; 0 for none.
    - `rejoin_s`: time of decoding alone before the next retry.
    """

    patience_s: float = 0.0
    rejoin_s: float = 1.0
