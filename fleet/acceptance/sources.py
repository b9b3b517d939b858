"""One source of random numbers for each cause of randomness in a run, the same in both worlds; uniform ones in blocks.

One numpy call for each number is too slow for an event loop.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SMALLEST, LARGEST = 32, 4096  # numbers of a block


class RandomSources(NamedTuple):
    """Random numbers of a run by cause, so that a change in one leaves the others unchanged.

    The causes: acceptance, step times of targets, links, step times of drafters, and overhead between steps.
    """

    acceptance: np.random.Generator
    targets: np.random.Generator
    links: np.random.Generator
    drafters: np.random.Generator
    delays: np.random.Generator


def sources_of(seed: int) -> RandomSources:
    """Return the sources of a run with that seed."""
    return RandomSources(*np.random.default_rng(seed).spawn(len(RandomSources._fields)))


def of_each(source: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Return the sources of `count` drafters, spawned from theirs; a single drafter uses that itself."""
    return [source] if count == 1 else list(source.spawn(count))


def uniform_blocks(rng: np.random.Generator, size: int = SMALLEST) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of uniform numbers in [0, 1) without end; the first has `size`, each next one twice as many.

    The first blocks are small because a fleet has thousands of sources, most of which draw few numbers. The block
    length does not change the sequence of a generator that has a single source.
    """
    while True:
        yield rng.random(size)
        size = min(2 * size, LARGEST)
