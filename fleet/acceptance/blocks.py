"""Random numbers in blocks: one numpy call for each number is too slow for an event loop."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SMALLEST, LARGEST = 32, 4096  # numbers of a block


def uniform_blocks(rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of uniform numbers in [0, 1) without end; each is twice as long as the block before.

    The first blocks are small because a fleet has thousands of sources, most of which draw few numbers. The block
    length does not change the sequence of a generator that has a single source.
    """
    size = SMALLEST
    while True:
        yield rng.random(size)
        size = min(2 * size, LARGEST)
