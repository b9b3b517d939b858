"""One source of random numbers for each cause of randomness in a run, the same in both worlds."""

from typing import NamedTuple

import numpy as np


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
