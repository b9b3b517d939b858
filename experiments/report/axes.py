"""Axes of a report's figures: which part of a quantity they show, where it is marked, and how numbers are written."""

import math
from collections.abc import Sequence

import msgspec

STEPS = (1, 2, 5, 10)
WANTED = 6  # ticks of an axis, about


class Axis(msgspec.Struct, frozen=True):
    """An axis from `low` to `high`; with `words`, its places 0, 1, 2, ... stand for them."""

    label: str
    low: float
    high: float
    words: tuple[str, ...] = ()

    def share(self, value: float) -> float:
        """Where a value is between the axis' ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return where it is marked, and with what."""
        if self.words:
            return [(float(place), word) for place, word in enumerate(self.words)]
        return [(value, written(value)) for value in nice_ticks(self.low, self.high)]


def axis_of(label: str, values: Sequence[float], words: Sequence[str] = (), from_zero: bool = False) -> Axis:
    """Return the axis that shows all finite values, with a little room; from zero on where nothing is below it."""
    if words:
        return Axis(label, -0.5, len(words) - 0.5, tuple(words))
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    begins = 0.0 if from_zero and low >= 0 else low
    room = 0.06 * (high - begins) or 0.06 * abs(high) or 1.0
    return Axis(label, begins if from_zero and low >= 0 else low - room, high + room)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from low to high.

    >>> nice_ticks(0.0, 1.1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / WANTED
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in STEPS if one * power >= 0.999 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def written(value: float) -> str:
    """Return a number as short as it can be said.

    >>> written(1200.0), written(0.05), written(2e6)
    ('1200', '0.05', '2e+06')
    """
    return f"{value:.6g}"
