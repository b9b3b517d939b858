"""Draft shapes: a chain, a static tree, or a dynamic tree that follows likely branches.

Shapes are fixed before sampling or depend on draft distributions only, so they never bias acceptance. Nodes are
numbered level by level; node 0 is the root, the last committed token, and not part of the draft.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_NODES = 4096  # nodes of a static tree: more is a mistake
Nodes = Annotated[int, Meta(ge=1, le=MAX_NODES)]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of drafts, by `kind`.

    Keys:
        kind: "chain": one token after the other. "tree": a static tree, set by `branching`. "dynamic": EAGLE-2's tree
            (Li et al. 2024), which grows by `width` and is cut to `most` nodes. A node is likely if the product of
            draft probabilities from the root is large.
        branching (children): Of a static tree: the number of children of the root, of each node of level 1, of level
            2, ...; the last number applies to deeper levels. One number k is StarSD's k-ary tree with k^d paths
            (appendix D). A tree has 4096 nodes at most.
        width (nodes): Of a dynamic tree: how many of the likeliest nodes of every level are expanded, by as many
            children each.
        most (nodes): Of a dynamic tree: the number of nodes, the likeliest ones, that are sent to verification.
    """

    kind: Literal["chain", "tree", "dynamic"] = "chain"
    branching: Annotated[tuple[Nodes, ...], Meta(min_length=1)] = (2,)
    width: Nodes = 4
    most: Nodes = 16

    def children(self, depth: int) -> list[int]:
        """Children of each node of a chain or a static tree by level, from the root on."""
        if self.kind == "chain":
            return [1] * depth
        return [self.branching[min(level, len(self.branching) - 1)] for level in range(depth)]

    def nodes(self, depth: int) -> int:
        """Draft tokens that a draft of `depth` levels sends to verification; ValueError for too large a tree."""
        if self.kind == "dynamic":
            return min(self.most, self.width + max(depth - 1, 0) * self.width**2) if depth else 0
        return depth if self.kind == "chain" else len(parents(self.children(depth)))

    def room(self, depth: int) -> int:
        """Cache places that a row needs beyond its text: the overshoot of a last round, and the draft beyond that."""
        return self.nodes(depth) + depth + 2


CHAIN = Shape()


def tree(*branching: int) -> Shape:
    """A static tree with so many children of each node by level."""
    return Shape("tree", branching)


def dynamic(width: int, most: int) -> Shape:
    """EAGLE-2's tree."""
    return Shape("dynamic", width=width, most=most)


def parents(children: Sequence[int]) -> list[int]:
    """Return the parent of nodes 1, 2, ... of a static tree with so many children of each node by level."""
    result: list[int] = []
    level = [0]
    for count in children:
        if len(result) + len(level) * count > MAX_NODES:
            raise ValueError(f"a tree with {list(children)} children by level has more than {MAX_NODES} nodes")
        begin = len(result) + 1
        result += [node for node in level for _ in range(count)]
        level = list(range(begin, len(result) + 1))
    return result


def some_parents(shape: Shape, nodes: int) -> list[int] | None:
    """Return the parents of the first `nodes` nodes of a draft; None for a chain.

    A dynamic tree is not known before it grew: a bushy one of as many nodes, level by level, stands for it.
    """
    if shape.kind == "chain":
        return None
    if shape.kind == "dynamic":
        return [node // shape.width for node in range(nodes)]
    levels = next(depth for depth in range(nodes + 1) if shape.nodes(depth) >= nodes)
    return parents(shape.children(levels))[:nodes]


def depths_of(parents: Sequence[int]) -> list[int]:
    """Return the level of nodes 1, 2, ..., whose parents stand before them; the root's is 0."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return depths[1:]


def reach(depth: int, base: int, positions: int) -> int:
    """Return how many of `depth` levels a draft after `base` tokens may have.

    - `positions`: learned positions of the models; 0 for no limit. A node of level j is j positions after the newest
      committed token.
    """
    return max(min(depth, positions - base), 0) if positions else depth
