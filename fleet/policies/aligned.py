"""Aligned batches: how to keep one rectangle when its rows accept different numbers of tokens.

Rows of unequal length do not fit into one rectangular tensor ("the ragged tensor problem", section 2 of Batch
Speculative Decoding Done Right). A rule decides which rows share the next round, and whether they are realigned
first. Serving engines need no rule: their rows keep their own lengths (`continuous.py`).
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

Size = Annotated[int, Meta(ge=1, le=10**9)]


class PooledRow(msgspec.Struct, frozen=True, gc=False):
    """A session in the pool, oldest first: its tag, and its row length, padding from its last batch included.

    - `fresh`: its prompt is not in the cache yet.
    """

    tag: int
    length: int
    fresh: bool = False


class NextRows(msgspec.Struct, frozen=True):
    """The rows of the next round, by tag, and whether they are realigned before."""

    tags: tuple[int, ...]
    realign: bool = False


class _Rule(msgspec.Struct, frozen=True):
    """Defaults of the rules. `size`: `B`, the most rows of a step."""

    def pool(self, size: int) -> int:
        """Return the number of sessions in the pool."""
        return size

    @property
    def together(self) -> bool:
        """Whether a batch ends as a whole: finished rows stay, and no new session joins before."""
        return False

    @property
    def sorts(self) -> bool:
        """Whether sessions enter by prompt length, not by arrival."""
        return False

    def pick(self, pool: Sequence[PooledRow], size: int) -> NextRows:
        """Choose the rows of the next round: all."""
        return NextRows(tuple(row.tag for row in pool))

    def kept(self, accepted: Sequence[int]) -> list[int]:
        """Return how many accepted tokens each row keeps: all."""
        return list(accepted)


class Realign(_Rule, frozen=True, tag="realign", tag_field="policy", forbid_unknown_fields=True):
    """EqSpec (algorithm 2): unpad, append and repad the batch after every round, its cache included.

    Keys:
        fixed: Whether a batch ends when its last row is complete, as in the paper's offline runs; else a new row
            replaces a finished one at the next realignment, as in its online runs.
    """

    fixed: bool = True

    @property
    def together(self) -> bool:
        """Whether a batch ends as a whole."""
        return self.fixed

    def pick(self, pool: Sequence[PooledRow], size: int) -> NextRows:
        """Choose the rows of the next round: all, realigned."""
        return NextRows(tuple(row.tag for row in pool), realign=True)


class Rollback(_Rule, frozen=True, tag="rollback", tag_field="policy", forbid_unknown_fields=True):
    """Every row falls back to the batch's minimum accepted length: aligned at the cost of the tokens thrown away."""

    together: ClassVar[bool] = True  # a new row would have another length

    def kept(self, accepted: Sequence[int]) -> list[int]:
        """Return how many accepted tokens each row keeps: the minimum of all."""
        return [min(accepted)] * len(accepted) if accepted else []


class SameLength(_Rule, frozen=True, tag="same-length", tag_field="policy", forbid_unknown_fields=True):
    """ExSpec (algorithm 3): rows of the same length first, from a window of W > B; realignment as the fallback.

    From the oldest row on, the first length that fills a batch forms one; if none does, the B oldest rows are
    realigned. They keep the padding of the realignment, and it counts: rows that were realigned together and then
    accept equally many tokens form a group again. A row is prefilled when it is first picked, and until then groups
    only with other new rows. Finished rows leave at once.

    Keys:
        window (rows): `W`, number of sessions in the pool; at least `max_num_seqs`. The authors' program runs with
            3 B.
        sort: Whether sessions enter by prompt length, not by arrival.
    """

    window: Size = 24
    sort: bool = False

    def pool(self, size: int) -> int:
        """Return the number of sessions in the pool: the window."""
        return max(self.window, size)

    @property
    def sorts(self) -> bool:
        """Whether sessions enter by prompt length, not by arrival."""
        return self.sort

    def pick(self, pool: Sequence[PooledRow], size: int) -> NextRows:
        """Choose the rows of the next round."""
        groups: dict[tuple[int, bool], list[int]] = {}
        wanted = min(size, len(pool))
        for row in pool:
            group = groups.setdefault((row.length, row.fresh), [])
            group.append(row.tag)
            if len(group) == wanted:
                return NextRows(tuple(group))
        return NextRows(tuple(row.tag for row in pool[:size]), realign=True)


AlignedRule = Realign | Rollback | SameLength
