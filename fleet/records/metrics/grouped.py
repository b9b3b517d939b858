"""Groups of rows with equal keys: numbered without a sort where keys leave few gaps, then statistics for each group."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specfleet.fleet.records.columns import Bools, Column, Integers, Words

Floats = NDArray[np.float64]
DENSE = 4  # places for each row, up to which keys are looked up in a table


class Groups:
    """The rows of a table in groups of equal keys; groups are in the order of their keys.

    - `of`, shape (rows,): the group of each row.
    """

    def __init__(self, *keys: Column) -> None:
        self.of, self._count = _ranks(*packed(*keys))

    def __len__(self) -> int:
        return self._count

    @cached_property
    def first(self) -> Integers:
        """The first row of each group; `key[groups.first]` are the groups' keys."""
        return _first_at(self.of, len(self))

    @property
    def is_first(self) -> Bools:
        """Whether each row is the first of its group."""
        is_first = np.zeros(len(self.of), dtype=bool)
        is_first[self.first] = True
        return is_first

    @cached_property
    def order(self) -> Integers:
        """The rows, group after group."""
        # Numpy sorts numbers of up to 16 bits in linear time.
        return np.argsort(self.of.astype(np.min_scalar_type(len(self))), kind="stable")

    def counts(self) -> Integers:
        """Number of rows of each group."""
        return np.bincount(self.of, minlength=len(self))

    def sums(self, values: ArrayLike) -> Floats:
        """Sum of each group's values."""
        return np.bincount(self.of, np.asarray(values, dtype=float), minlength=len(self)).astype(np.float64)

    def means(self, values: ArrayLike) -> Floats:
        """Mean of each group's values."""
        return self.sums(values) / self.counts()

    def largest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return each group's largest value."""
        starts = np.cumsum(self.counts()) - self.counts()
        return np.maximum.reduceat(values[self.order], starts) if len(self) else values[:0]

    def smallest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return each group's smallest value."""
        return -self.largest(-values)

    def before(self) -> Integers:
        """Return the row before each row in its group, shape (rows,); -1 for a group's first."""
        rows = np.full(len(self.of), -1)
        rows[self.order[1:]] = self.order[:-1]
        rows[self.first] = -1
        return rows


def packed(*keys: Column) -> tuple[Integers, int]:
    """Return one integer for each row that orders and compares like all its keys, and a limit of these integers."""
    code, room = np.zeros(len(keys[0]), dtype=np.int64), 1
    if not len(code):
        return code, room
    for key in keys:
        numbers = key.codes if isinstance(key, Words) else key
        low, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        if room * span > DENSE * len(code):  # keys with gaps: ranks are smaller
            (code, room), (numbers, span), low = _ranks(code, room), _ranks(numbers, span, low), 0
            before = np.empty(span, dtype=np.int64)
            before[numbers] = code
            if np.array_equal(before[numbers], code):  # as a request is of one stream
                code, room = np.argsort(np.argsort(before, kind="stable"))[numbers], span
                continue
        code = code * span + (numbers - low)
        room *= span
    return code, room


def find(wanted: Sequence[NDArray[Any]], among: Sequence[NDArray[Any]]) -> Integers:
    """Return for each row of the keys `wanted` the first equal row of the keys `among`; -1 if none."""
    count = len(wanted[0])
    if not len(among[0]):
        return np.full(count, -1)
    code, room = packed(*(np.concatenate(pair) for pair in zip(wanted, among, strict=True)))
    if room > DENSE * len(code):
        code, room = _ranks(code, room)
    there = code[count:]
    return _first_at(there, room)[code[:count]]


def at(values: NDArray[Any], rows: Integers) -> Floats:
    """Return the values of these rows; NaN for row -1."""
    return np.append(values, np.nan)[rows]


def _first_at(places: Integers, count: int) -> Integers:
    """Return the first row at each of so many places; -1 if none."""
    first = np.full(count, -1)
    first[places[::-1]] = np.arange(len(places))[::-1]  # the last of several assignments to one index stays
    return first


def _ranks(code: Integers, room: int, low: int = 0) -> tuple[Integers, int]:
    """Return the ranks of integers among the distinct ones, so many from `low` on are possible; and their number."""
    if room > DENSE * len(code):
        distinct, ranks = np.unique(code, return_inverse=True)
        return ranks.astype(np.int64), len(distinct)
    code, occurs = code - low if low else code, np.zeros(room, dtype=bool)
    occurs[code] = True
    count = int(np.count_nonzero(occurs))
    return (code if count == room else (np.cumsum(occurs) - 1)[code]), count
