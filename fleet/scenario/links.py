"""Links of a fleet: which stations have one, what draws the times of each way, and which of them a run holds back."""

from collections.abc import Iterable
from itertools import chain, product
from typing import NamedTuple

import msgspec
import numpy as np

from fleet.scenario.resolved import Fleet

Pair = tuple[int, int]
"""A target and a drafter, by number."""


class Ways(NamedTuple):
    """Random numbers of one link, a source each way: both ends of it are processes of their own in the real world."""

    down: np.random.Generator
    up: np.random.Generator


def linked_pairs(fleet: Fleet, tags: Iterable[int]) -> list[Pair]:
    """Return the pairs with a link: each target with those its streams `tags` are dealt to; all, if any may be."""
    if fleet.routed:
        return list(product(range(fleet.verifiers.count), range(fleet.drafters.count)))
    return sorted({(fleet.target_of(tag), fleet.drafter_of(tag)) for tag in tags})


def ways_of(pairs: list[Pair], links: np.random.Generator) -> dict[Pair, Ways]:
    """Return the sources of every link, the same ones in both worlds, from that of all links."""
    return {pair: Ways(*source.spawn(2)) for pair, source in zip(pairs, links.spawn(len(pairs)), strict=True)}


def holds_links(fleet: Fleet) -> bool:
    """Whether a run holds messages back for as long as links take that the scenario states."""
    return fleet.one_clock and any(link.held for link in chain(*fleet.links))


def holds_messages(fleet: Fleet) -> bool:
    """Whether a run holds any messages back: those on stated links, or a router's news that is meant to be late."""
    return holds_links(fleet) or (fleet.one_clock and fleet.routed and fleet.drafters.view_delay_s > 0)


def with_links_of_hosts(fleet: Fleet) -> Fleet:
    """Return the fleet whose nodes are on hosts with clocks of their own: messages take as long as between those."""
    return msgspec.structs.replace(fleet, one_clock=False)
