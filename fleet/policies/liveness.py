"""Timeouts of drafts, of retries and of sessions.

Times are on the caller's clock.
"""

import math

import msgspec


class Patience(msgspec.Struct, frozen=True):
    """A target's timeouts.

    - `patience_s`: timeout of a draft; 0 for none.
    - `rejoin_s`: time of decoding alone before the next retry.
    """

    patience_s: float = 0.0
    rejoin_s: float = 1.0

    def overdue_s(self, asked_s: float) -> float:
        """Return when a draft requested at `asked_s` times out; infinite without a timeout."""
        return asked_s + self.patience_s if self.patience_s > 0 else math.inf

    def retry_s(self, failed_s: float) -> float:
        """Return when a target retries a drafter that failed at `failed_s`."""
        return failed_s + self.rejoin_s


def lease_ends_s(heard_s: float, lease_s: float) -> float:
    """Return when a drafter ends a session whose target last answered at `heard_s`; infinite without a lease."""
    return heard_s + lease_s if lease_s > 0 else math.inf
