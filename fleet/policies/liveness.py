"""How long a target waits for a draft before it goes on alone, when it asks again, how long a drafter keeps the silent.

Times are those of the clock of the caller: nothing here has one.
"""

import math

import msgspec


class Patience(msgspec.Struct, frozen=True):
    """What a target does about a drafter that does not answer.

    `patience_s`: how long it waits for a draft; 0 for ever. `rejoin_s`: how long it decodes alone before it asks again.
    """

    patience_s: float = 0.0
    rejoin_s: float = 1.0

    def overdue_s(self, asked_s: float) -> float:
        """When a draft that was asked for at `asked_s` is overdue; infinite where the target waits for ever."""
        return asked_s + self.patience_s if self.patience_s > 0 else math.inf

    def retry_s(self, failed_s: float) -> float:
        """When a target asks again whose drafter did not answer at `failed_s`."""
        return failed_s + self.rejoin_s


def lease_ends_s(heard_s: float, lease_s: float) -> float:
    """When a drafter ends a session whose target has owed it an answer since `heard_s`; infinite without a lease."""
    return heard_s + lease_s if lease_s > 0 else math.inf
