"""What a draft looks like: a chain, a static tree, or a tree that grows where the drafter is sure.

Shapes are fixed before anything is sampled, or depend on draft distributions only, so what is left out never biases
what is accepted. Nodes are numbered level by level; node 0 is the root, the last committed token, and is no draft.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
MOST_NODES = 4096  # of a static tree: more is surely a mistake


class Chain(msgspec.Struct, frozen=True, tag="chain", tag_field="policy", forbid_unknown_fields=True):
    """One token after the other."""

    def children(self, depth: int) -> list[int]:
        """Children of each node by level, from the root on."""
        return [1] * depth

    def nodes(self, depth: int) -> int:
        """Draft tokens that a draft of `depth` levels sends to verification."""
        return depth


class Tree(msgspec.Struct, frozen=True, tag="tree", tag_field="policy", forbid_unknown_fields=True):
    """A static tree: every node of level l has `branching[l]` children; the last number holds for deeper levels.

    `branching = [k]` is StarSD's k-ary tree (appendix D), with k^d paths.
    """

    branching: Annotated[tuple[Count, ...], Meta(min_length=1)] = (2,)

    def children(self, depth: int) -> list[int]:
        """Children of each node by level, from the root on."""
        return [self.branching[min(level, len(self.branching) - 1)] for level in range(depth)]

    def nodes(self, depth: int) -> int:
        """Draft tokens that a draft of `depth` levels sends to verification; ValueError beyond MOST_NODES."""
        return len(parents(self.children(depth)))


class Dynamic(msgspec.Struct, frozen=True, tag="dynamic", tag_field="policy", forbid_unknown_fields=True):
    """EAGLE-2's tree (Li et al. 2024): expand the `width` likeliest nodes of a level, verify the `most` likeliest.

    How likely a node is, is the product of draft probabilities from the root to it.
    """

    width: Count = 4
    most: Count = 16

    def nodes(self, depth: int) -> int:
        """Draft tokens that a draft of `depth` levels sends to verification."""
        return min(self.most, self.width + max(depth - 1, 0) * self.width**2)


Shape = Chain | Tree | Dynamic


def parents(children: Sequence[int]) -> list[int]:
    """Return the parent of nodes 1, 2, ... of a static tree with so many children of each node by level."""
    result: list[int] = []
    level = [0]
    for count in children:
        if len(result) + len(level) * count > MOST_NODES:
            raise ValueError(f"a tree with {list(children)} children by level has more than {MOST_NODES} nodes")
        begin = len(result) + 1
        result += [node for node in level for _ in range(count)]
        level = list(range(begin, len(result) + 1))
    return result


def depths_of(parents: Sequence[int]) -> list[int]:
    """Return the level of nodes 1, 2, ..., whose parents stand before them; the root's is 0."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return depths[1:]
