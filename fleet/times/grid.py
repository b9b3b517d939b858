"""Attention measured at a grid of sizes; between them logarithms of times are straight lines over those of sizes."""

from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

Sizes = Annotated[tuple[Annotated[float, Meta(ge=0, le=1e9)], ...], Meta(min_length=2)]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Times in seconds at all combinations of sizes, the last axis first to change.

    - `sizes`: of each axis, rising; a first one of 0 counts as half of the second.
    """

    sizes: tuple[Sizes, ...]
    time_s: tuple[Annotated[float, Meta(gt=0, le=1e9)], ...]

    def __post_init__(self) -> None:
        rising = all(low < high for axis in self.sizes for low, high in pairwise(axis))
        if not rising or len(self.time_s) != prod(map(len, self.sizes)):
            raise ValueError("a grid needs rising sizes, and a time for each combination of them")

    @cached_property
    def _logs(self) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
        axes = [np.log([axis[0] or axis[1] / 2, *axis[1:]]) for axis in self.sizes]
        return axes, np.log(self.time_s).reshape([len(axis) for axis in axes])

    def at(self, *sizes: float) -> float:
        """Return the time at a size of each axis, none below its first; the last may be an array."""
        axes, log_s = self._logs
        for axis, size in zip(axes, sizes, strict=True):
            place = np.maximum(np.log(np.maximum(size, 1e-9)), axis[0])
            right = np.clip(np.searchsorted(axis, place), 1, len(axis) - 1)
            share = (place - axis[right - 1]) / (axis[right] - axis[right - 1])
            log_s = (1 - share) * log_s[right - 1] + share * log_s[right]
        return np.exp(log_s) if log_s.ndim else float(np.exp(log_s))


class MeasuredAttention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attention measured in a layer.

    - `layers`: what its times are multiplied by.
    - `alone`: steps of one kind: by rows and their context, or by a chunk of a prompt and the tokens before it.
    - `beside`: a chunk beside decoding rows: by both of each. None if `alone` is of chunks.
    """

    layers: Annotated[float, Meta(ge=0, le=1e9)]
    alone: Grid
    beside: Grid | None = None

    def of_one_kind_s(self, longest: float, rows: float, context: float) -> float:
        """Return the time of rows of one kind; the tokens of a row's draft are computed together, as fast as one."""
        alone_s = self.alone.at(rows, context) if self.beside else rows * self.alone.at(longest, context)
        return self.layers * alone_s
