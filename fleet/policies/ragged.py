"""Batch rules: how to treat a batch whose rows accept different numbers of tokens.

Rows of unequal length do not fit into one rectangular tensor ("the ragged tensor problem", section 2 of Batch
Speculative Decoding Done Right). A rule decides which rows share the next round, and whether they are realigned
first.
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
    """Defaults of the rules.

    - `aligns`: whether the rows of a step must end together, padding included.

    Keys:
        size (rows): `B`, maximum number of rows in a step.
    """

    aligns: ClassVar[bool] = True

    size: Size

    @property
    def pool(self) -> int:
        """Number of sessions in the pool."""
        return self.size

    @property
    def together(self) -> bool:
        """Whether a batch ends as a whole: finished rows stay, and no new session joins before."""
        return False

    @property
    def sorts(self) -> bool:
        """Whether sessions enter by prompt length, not by arrival."""
        return False

    def pick(self, pool: Sequence[PooledRow]) -> NextRows:
        """Choose the rows of the next round: all."""
        return NextRows(tuple(row.tag for row in pool))

    def kept(self, accepted: Sequence[int]) -> list[int]:
        """Return how many accepted tokens each row keeps: all."""
        return list(accepted)


class Slots(_Rule, frozen=True, tag="slots", tag_field="policy", forbid_unknown_fields=True):
    """Rows keep their own length in place, addressed by slot, without realignment. A rule of our own.

    Finished rows leave at once and the next session takes the slot (continuous batching).
    """

    aligns: ClassVar[bool] = False


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

    def pick(self, pool: Sequence[PooledRow]) -> NextRows:
        """Choose the rows of the next round: all, realigned."""
        return NextRows(tuple(row.tag for row in pool), realign=True)


class Rollback(_Rule, frozen=True, tag="rollback", tag_field="policy", forbid_unknown_fields=True):
    """Every row falls back to the batch's minimum accepted length: aligned at the cost of the tokens thrown away."""

    @property
    def together(self) -> bool:
        """Whether a batch ends as a whole: yes, since a new row would have another length."""
        return True

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
        window (rows): `W`, number of sessions in the pool; at least `size`. The authors' program runs with 3 B.
        sort: Whether sessions enter by prompt length, not by arrival.
    """

    window: Size = 24
    sort: bool = False

    def __post_init__(self) -> None:
        if self.window < self.size:
            raise ValueError(f"window = {self.window} must hold at least size = {self.size} rows")

    @property
    def pool(self) -> int:
        """Number of sessions in the pool: the window."""
        return self.window

    @property
    def sorts(self) -> bool:
        """Whether sessions enter by prompt length, not by arrival."""
        return self.sort

    def pick(self, pool: Sequence[PooledRow]) -> NextRows:
        """Choose the rows of the next round."""
        groups: dict[tuple[int, bool], list[int]] = {}
        wanted = min(self.size, len(pool))
        for row in pool:
            group = groups.setdefault((row.length, row.fresh), [])
            group.append(row.tag)
            if len(group) == wanted:
                return NextRows(tuple(group))
        return NextRows(tuple(row.tag for row in pool[: self.size]), realign=True)


BatchRule = Slots | Realign | Rollback | SameLength
