"""Routing: which of several drafters drafts next for a session, by reports that may be out of date."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.own import with_own

Times = tuple[Annotated[float, Meta(ge=0, le=1e9)], ...]


class Affinity(msgspec.Struct, frozen=True, tag="affinity", tag_field="policy", forbid_unknown_fields=True):
    """A session keeps its drafter; new sessions are dealt to the drafters in turn, without a router."""


class RoundRobin(msgspec.Struct, frozen=True, tag="round-robin", tag_field="policy", forbid_unknown_fields=True):
    """Each drafter in turn, whatever its queue."""

    def choose(self, home: int | None, queues: Sequence[int], turn: int) -> int:
        """Return the number of the drafter."""
        return turn % len(queues)


class ShortestQueue(msgspec.Struct, frozen=True, tag="shortest-queue", tag_field="policy", forbid_unknown_fields=True):
    """The drafter with the fewest sessions, those sent since its report included; the own one among equals."""

    def choose(self, home: int | None, queues: Sequence[int], turn: int) -> int:
        """Return the number of the drafter."""
        return min(range(len(queues)), key=lambda i: (queues[i], i != home, i))


class Predicted(msgspec.Struct, frozen=True, tag="predicted", tag_field="policy", forbid_unknown_fields=True):
    """The drafter with the least predicted time until its draft is done, for a token of the round (StarSD, appendix I).

    A draft waits for each session that the drafter has by its report, as `ShortestQueue`, and takes its own time; a
    session that moves is prefilled first. Among equals the own drafter, then the first.

    Keys:
        service_s (s): Times of a draft at drafters 1, 2, ...; the last entry applies to all further drafters. Left
            out, means of the profile and `drafters.tiers` at the workload's middle context.
        prefill_s (s): Times of the prefill of a session that moves to them. Left out, likewise.
        tokens_per_round (tokens/round): Tokens of a round with their drafts, by their acceptance, the target's own one
            included. Only quotients count; the default is for drafters of one model.
    """

    service_s: Times = ()
    prefill_s: Times = ()
    tokens_per_round: Annotated[tuple[Annotated[float, Meta(gt=0, le=1e9)], ...], Meta(min_length=1)] = (1.0,)

    def choose(self, home: int | None, queues: Sequence[int], turn: int) -> int:
        """Return the number of the drafter."""
        drafters = range(len(queues))
        return min(drafters, key=lambda i: (self.token_s(i, queues[i], i != home), i != home, i))

    def token_s(self, drafter: int, queue: int, moves: bool) -> float:
        """Return the predicted time for a token of the round, behind so many sessions."""
        service_s, prefill_s, tokens = (
            entries[min(drafter, len(entries) - 1)]
            for entries in (self.service_s, self.prefill_s, self.tokens_per_round)
        )
        return ((queue + 1) * service_s + moves * prefill_s) / tokens


class LongestPrefix(msgspec.Struct, frozen=True, tag="longest-prefix", tag_field="policy", forbid_unknown_fields=True):
    """The drafter that has most of a text in its prefix cache, unless more sessions are there than elsewhere.

    It has the largest share of the text less `beta` (q - m) / max(1, m), with q sessions there and m on average: the
    load-aware rule of vLLM's production stack. Among equals the own drafter, then each in turn. To the router, what it
    has sent to a drafter lately is cached there.

    Keys:
        beta (factor): Share of a text that twice the mean number of sessions outweighs. 0 looks at texts alone.
            Default: that of production stack's `--loadaware-beta`.
    """

    beta: Annotated[float, Meta(ge=0, le=1e9)] = 1.0

    def choose(self, home: int | None, queues: Sequence[int], turn: int, shares: Sequence[float]) -> int:
        """Return the number of the drafter. `shares`: of the text that each has in its cache."""
        drafters, mean = len(queues), sum(queues) / len(queues)
        worth = [share - self.beta * (q - mean) / max(1.0, mean) for share, q in zip(shares, queues, strict=True)]
        return max(range(drafters), key=lambda i: (worth[i], i == home, -((i - turn) % drafters)))


if TYPE_CHECKING:
    Routing = RoundRobin | ShortestQueue | Predicted | LongestPrefix  # a router decides each round
    Route = Affinity | Routing
else:
    Routing = with_own("route", RoundRobin, ShortestQueue, Predicted, LongestPrefix)
    Route = Affinity | Routing
