"""Order: which waiting request a drafter serves next."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.own import with_own

StepKind = Literal[
    "prefill", "chunk", "draft_prefill", "draft", "verify", "decode", "mixed", "realign", "warm_up", "route"
]


class Work(msgspec.Struct, frozen=True, gc=False):
    """One thing to do for one session, as it waits at a station; rules read it. Arrivals are listed oldest first.

    - `priority`: a larger number is more urgent.
    - `virtual_start`: start in virtual time, see `Weighted`. `due_s`: deadline, see `Deadline`.
    - `not_before_s`: earliest start under a rate limit.
    - `base`: committed tokens of the text, its prompt included. This and what follows is 0 for the rules that ship.
    - `left`: tokens that the request still needs, by the workload.
    - `accepted_per_round`: accepted draft tokens of a round so far in this request, the mean; NaN before the first
      outcome.
    """

    kind: StepKind
    tag: int
    priority: int = 0
    virtual_start: float = 0.0
    not_before_s: float = 0.0
    base: int = 0
    left: int = 0
    accepted_per_round: float = 0.0
    due_s: float = 0.0


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """Orders that may limit the rates of targets (StarSD, appendix I).

    Keys:
        limits_per_s (rounds/s): Maximum rate of draft requests of targets 1, 2, ... at each drafter; 0 is no limit, and
            the last entry applies to all further targets.
    """

    limits_per_s: tuple[Annotated[float, Meta(ge=0, le=1e9)], ...] = ()

    def __post_init__(self) -> None:
        if self.limits_per_s and not any(self.limits_per_s):
            raise ValueError("limits_per_s limits no target; give a rate above 0, or leave it out")


class Fifo(Limited, frozen=True, tag="fifo", tag_field="policy", forbid_unknown_fields=True):
    """First in, first out: the order of StarSD's global request buffer (appendix E.2)."""

    def pick(self, waiting: Sequence[Work]) -> int:
        """Return the index of the request to serve next."""
        return 0


class Priority(Limited, frozen=True, tag="priority", tag_field="policy", forbid_unknown_fields=True):
    """The most urgent first; first in, first out among equals."""

    def pick(self, waiting: Sequence[Work]) -> int:
        """Return the index of the request to serve next."""
        return max(range(len(waiting)), key=lambda index: (waiting[index].priority, -index))


class Weighted(Limited, frozen=True, tag="weighted", tag_field="policy", forbid_unknown_fields=True):
    """Rounds in proportion to weights: fair queueing in virtual time, for targets with one round at a time.

    A request starts, in virtual time, when its target's last one ended, and ends 1 / weight later; the earliest start
    goes first. A target has no request during verification, so its lag is kept up to `credit`. Start-time fair
    queueing (Goyal, Vin and Cheng 1996) would drop the lag and serve all targets alike.

    Keys:
        weights (factor): Weights of targets 1, 2, ...; the last one applies to all further targets.
    """

    weights: Annotated[tuple[Annotated[float, Meta(gt=0, le=1e9)], ...], Meta(min_length=1)]

    @property
    def credit(self) -> float:
        """Maximum lag of a target in virtual time: two rounds of the lightest one."""
        return 2 / min(self.weights)

    def weight(self, target: int) -> float:
        """Weight of a target."""
        return self.weights[min(target, len(self.weights) - 1)]

    def pick(self, waiting: Sequence[Work]) -> int:
        """Return the index of the request to serve next."""
        return min(range(len(waiting)), key=lambda index: (waiting[index].virtual_start, index))


class Deadline(Limited, frozen=True, tag="deadline", tag_field="policy", forbid_unknown_fields=True):
    """Earliest deadline first (StarSD, appendix I): a draft request is due its target's goal after its arrival.

    First in, first out among equals. A goal that is missed has no further effect; while drafting ahead, each token is
    a request.

    Keys:
        goals_s (s): Latency goals at the drafter of targets 1, 2, ...; the last one applies to all further targets.
    """

    goals_s: Annotated[tuple[Annotated[float, Meta(gt=0, le=1e9)], ...], Meta(min_length=1)]

    def goal_s(self, target: int) -> float:
        """Latency goal of a target."""
        return self.goals_s[min(target, len(self.goals_s) - 1)]

    def pick(self, waiting: Sequence[Work]) -> int:
        """Return the index of the request to serve next."""
        return min(range(len(waiting)), key=lambda index: (waiting[index].due_s, index))


def rate_limits(order: object) -> tuple[float, ...]:
    """Return the limits of an order; none for orders of installed packages."""
    return order.limits_per_s if isinstance(order, Limited) else ()


SHIPPED = (Fifo, Priority, Weighted, Deadline)
if TYPE_CHECKING:
    Order = Fifo | Priority | Weighted | Deadline
else:
    Order = with_own("order", *SHIPPED)
