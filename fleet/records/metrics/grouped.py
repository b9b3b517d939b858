"""Groups of rows with equal keys: one sort, then statistics for each group."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specfleet.fleet.records.columns import Bools, Column, Integers, Words

Floats = NDArray[np.float64]
MAX_KEY = 2**62  # limit of a packed key, so that it is an int64


class Groups:
    """The rows of a table in groups of equal keys; groups are in the order of their keys.

    - `first`, shape (groups,): first row of each group; `key[groups.first]` are the groups' keys.
    """

    def __init__(self, *keys: Column) -> None:
        codes = packed(*keys)
        self.order: Integers = np.argsort(codes, kind="stable")
        ordered = codes[self.order]
        begins = np.ones(len(codes), dtype=bool)
        begins[1:] = ordered[1:] != ordered[:-1]
        self.begins = begins
        self.starts = np.flatnonzero(begins)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def first(self) -> Integers:
        """The first row of each group."""
        rows: Integers = self.order[self.starts]
        return rows

    @cached_property
    def of(self) -> Integers:
        """The group of each row, shape (rows,)."""
        group = np.empty(len(self.order), dtype=np.int64)
        group[self.order] = np.cumsum(self.begins) - 1
        return group

    def first_of(self, mask: Bools) -> Integers:
        """Return each group's first row for which a mask over the rows is true; -1 if none."""
        rows = np.flatnonzero(mask)[::-1]
        first = np.full(len(self), -1)
        first[self.of[rows]] = rows  # the last of several assignments to one index stays
        return first

    def counts(self) -> Integers:
        """Number of rows of each group."""
        return np.diff(np.append(self.starts, len(self.order)))

    def sums(self, values: ArrayLike) -> Floats:
        """Sum of each group's values."""
        return np.bincount(self.of, np.asarray(values, dtype=float), minlength=len(self)).astype(np.float64)

    def means(self, values: ArrayLike) -> Floats:
        """Mean of each group's values."""
        return self.sums(values) / self.counts()

    def largest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return each group's largest value."""
        return np.maximum.reduceat(values[self.order], self.starts) if len(self) else values[:0]

    def smallest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return each group's smallest value."""
        return np.minimum.reduceat(values[self.order], self.starts) if len(self) else values[:0]

    def before(self) -> Integers:
        """Return the row before each row in its group, shape (rows,); -1 for a group's first."""
        rows = np.full(len(self.order), -1)
        rows[self.order[1:]] = np.where(self.begins[1:], -1, self.order[:-1])
        return rows


def packed(*keys: Column) -> Integers:
    """Return one integer for each row that orders and compares like all its keys."""
    code, room = np.zeros(len(keys[0]), dtype=np.int64), 1
    if not len(code):
        return code
    for key in keys:
        numbers = key.codes if isinstance(key, Words) else key
        low, span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        if room * span > MAX_KEY:  # keys with gaps: ranks are smaller
            (code, room), (numbers, span), low = _ranks(code), _ranks(numbers), 0
        code = code * span + (numbers - low)
        room *= span
    return code


def find(wanted: Sequence[NDArray[Any]], among: Sequence[NDArray[Any]]) -> Integers:
    """Return for each row of the keys `wanted` the first equal row of the keys `among`; -1 if none."""
    count = len(wanted[0])
    code = packed(*(np.concatenate(pair) for pair in zip(wanted, among, strict=True)))
    code, there = code[:count], code[count:]
    if not len(there):
        return np.full(count, -1)
    order = np.argsort(there, kind="stable")
    there = there[order]
    place = np.minimum(np.searchsorted(there, code), len(there) - 1)
    return np.where(there[place] == code, order[place], -1)


def at(values: NDArray[Any], rows: Integers) -> Floats:
    """Return the values of these rows; NaN for row -1."""
    chosen = np.full(len(rows), np.nan)
    valid = rows >= 0
    chosen[valid] = values[rows[valid]]
    return chosen


def _ranks(numbers: Integers) -> tuple[Integers, int]:
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.int64), len(distinct)
