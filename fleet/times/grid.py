"""Times measured at a grid of sizes; between them logarithms of times are straight lines over those of sizes."""

from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

Size = Annotated[float, Meta(ge=0, le=1e9)]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Times at all combinations of sizes, the last axis first to change.

    - `sizes`: of each axis, rising; a first one of 0 counts as half of the second.
    - `factor`: what times are multiplied by: layers.
    """

    sizes: tuple[Annotated[tuple[Size, ...], Meta(min_length=2)], ...]
    time_s: tuple[Annotated[float, Meta(gt=0, le=1e9)], ...]
    factor: Size = 1.0

    def __post_init__(self) -> None:
        rising = all(low < high for axis in self.sizes for low, high in pairwise(axis))
        if not rising or len(self.time_s) != prod(map(len, self.sizes)):
            raise ValueError("a grid needs rising sizes, and a time for each combination of them")

    @cached_property
    def _logs(self) -> tuple[list[Any], Any]:
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
        time_s: Any = self.factor * np.exp(log_s)
        return time_s if np.ndim(time_s) else float(time_s)
