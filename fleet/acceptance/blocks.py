"""Random numbers in blocks: an event loop cannot afford a numpy call a number."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SMALLEST, LARGEST = 32, 4096  # numbers of a block


def uniform_blocks(rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of uniform numbers in [0, 1), each twice as long as the one before, for ever.

    They are small at first, because most sources give few numbers: of ten thousand targets each has several, and would
    fill gigabytes with large blocks. The numbers are the same ones whatever the blocks, but where a generator has
    several sources, whose blocks follow one another.
    """
    size = SMALLEST
    while True:
        yield rng.random(size)
        size = min(2 * size, LARGEST)
