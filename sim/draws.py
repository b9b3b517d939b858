"""Random times for the simulation, drawn in blocks: an event loop cannot afford a numpy call a number."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from specfleet.profile import Constant, Spread

BLOCK = 4096


def ratios(spread: Spread, rng: np.random.Generator) -> Iterator[float]:
    """Yield independent multipliers of a mean time, for ever."""
    if isinstance(spread, Constant):
        return repeat(1.0)
    return _blocks(spread, rng)


def _blocks(spread: Spread, rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from spread.ratios(rng.random(BLOCK)).tolist()
