"""One source of random numbers for each cause of randomness in a run, the same ones in both worlds."""

from typing import NamedTuple

import numpy as np


class Sources(NamedTuple):
    """Random numbers of a run by what they decide, so that a change in one cause leaves the others alone.

    Acceptance, step times of targets, links, step times of drafters, and what passes between the steps of stations.
    """

    acceptance: np.random.Generator
    targets: np.random.Generator
    links: np.random.Generator
    drafters: np.random.Generator
    delays: np.random.Generator


def sources_of(seed: int) -> Sources:
    """Return the sources of a run with that seed, from their beginnings."""
    return Sources(*np.random.default_rng(seed).spawn(len(Sources._fields)))


def of_each(source: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Return the sources of `count` drafters from theirs; an only one takes that itself."""
    return [source] if count == 1 else list(source.spawn(count))
