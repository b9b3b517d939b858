"""Links of a fleet: pairs, random sources, and which links a run emulates."""

from collections.abc import Iterable
from itertools import chain, product
from typing import NamedTuple

import numpy as np

from specfleet.fleet.scenario.faults import LinkFaults, Way
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolved import Fleet

Pair = tuple[int, int]
"""A target and a drafter, by number."""


class Ways(NamedTuple):
    """Random sources of one link, one for each direction: in the real world its ends are separate processes."""

    down: np.random.Generator
    up: np.random.Generator


def linked_pairs(fleet: Fleet, tags: Iterable[int]) -> list[Pair]:
    """Return the linked pairs: each target with the drafters of its streams `tags`, or with all if streams may move."""
    if fleet.routed:
        return list(product(range(fleet.verifiers.count), range(fleet.drafters.count)))
    return sorted({(fleet.target_of(tag), fleet.drafter_of(tag)) for tag in tags})


def ways_of(pairs: list[Pair], links: np.random.Generator) -> dict[Pair, Ways]:
    """Return the sources of every link, the same in both worlds, from that of all links."""
    return {pair: Ways(*source.spawn(2)) for pair, source in zip(pairs, links.spawn(len(pairs)), strict=True)}


def link_faults(fleet: Fleet, target: int, drafter: int, way: Way, life: int = 0) -> LinkFaults:
    """Return the faults of one way of a link, the same in both worlds in the first life of a drafter's process."""
    rng = np.random.default_rng([fleet.seed, 3, target, drafter, way == "up", *([life] if life else [])])
    return LinkFaults(fleet.faults, fleet.drafter_name(drafter), verifier_name(target), rng)


def holds_links(fleet: Fleet) -> bool:
    """Return whether a run delays messages by the scenario's stated links."""
    return fleet.one_clock and any(link.held for link in chain(*fleet.links))
