"""Draft trees as tensors: the parent, children and ancestors of each node.

Nodes are numbered from the root, 0: the row's last committed token. Draft tokens are nodes 1 .. n; a parent's number is
below its children's. A chain is the tree in which every node has one child.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from specfleet.engine.decoding.placing import placed
from specfleet.fleet.policies.shapes import parents as parents_of


@dataclass(frozen=True, slots=True)
class Tree:
    """Trees of B rows, or one that all rows share (B = 1), with n nodes beside the root, at most K children each.

    - `parents` (B, n): of nodes 1 .. n.
    - `children` (B, n + 1, K): -1 where there is none.
    - `ancestors` (B, n + 1, n + 1): whether the second is the first one or above it.
    - `depths` (B, n + 1): of the nodes. `levels`: the depth of the tree.
    """

    parents: torch.Tensor
    children: torch.Tensor
    ancestors: torch.Tensor
    depths: torch.Tensor
    levels: int

    @property
    def nodes(self) -> int:
        """n, without the root."""
        return self.parents.shape[1]

    @property
    def is_chain(self) -> bool:
        """Whether every node has at most one child, next to it."""
        return self.children.shape[-1] == 1 and self.levels == self.nodes


@lru_cache(maxsize=256)
def static_tree(children: tuple[int, ...], device: torch.device) -> Tree:
    """Return the tree with so many children of each node by level, shared by all rows."""
    parents = placed([parents_of(children)], device, torch.long)
    return make_tree(parents, len(children), max(children, default=0))


def make_tree(parents: torch.Tensor, levels: int, most_children: int) -> Tree:
    """Complete trees from the parents (B, n) of their nodes 1 .. n; the root's number is 0."""
    B, n = parents.shape
    device = parents.device
    itself = torch.eye(n + 1, dtype=torch.bool, device=device).expand(B, -1, -1)
    ancestors = itself
    up = torch.cat([torch.zeros(B, 1, dtype=torch.long, device=device), parents], 1)  # (B, n + 1), the root's is itself
    for _ in range(levels):
        ancestors = ancestors.gather(1, up[:, :, None].expand(-1, -1, n + 1)) | itself
    # A child's place among its siblings: how many nodes before it have the same parent.
    same = (parents[:, :, None] == parents[:, None, :]).tril(-1)
    place = same.sum(-1)
    children = torch.full((B, (n + 1) * max(most_children, 1)), -1, dtype=torch.long, device=device)
    numbers = torch.arange(1, n + 1, device=device).expand(B, -1)
    children.scatter_(1, parents * max(most_children, 1) + place, numbers)
    return Tree(parents, children.view(B, n + 1, max(most_children, 1)), ancestors, ancestors.sum(-1) - 1, levels)
