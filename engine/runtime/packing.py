"""Between drafts as tensors of a batch and drafts as contents of messages, one a stream."""

from collections.abc import Sequence

import numpy as np
import torch

from engine.decoding.grow import Drafts
from engine.decoding.placing import placed
from engine.decoding.trees import static_tree, tree_of
from engine.runtime.content import Content
from fleet.policies.shapes import depths_of


def contents_of(drafts: Drafts) -> list[Content]:
    """Return each row of `drafts` as the content of its message."""
    tree, n = drafts.tree, drafts.tree.nodes
    copied = drafts.tokens if tree.is_chain else torch.cat([drafts.tokens, tree.parents.expand_as(drafts.tokens)], 1)
    weights = None if drafts.q is None else drafts.q.cpu().numpy()
    contents = []
    for index, (row, count) in enumerate(zip(copied.tolist(), drafts.counts, strict=True)):
        nodes = None if tree.is_chain else row[n : n + count]
        inner = count if nodes is None else max(nodes, default=-1) + 1
        contents.append(Content(row[:count], nodes, None if weights is None else weights[index, :inner]))
    return contents


def drafts_of(contents: Sequence[Content], device: torch.device) -> Drafts:
    """Put the contents of messages together as one batch, for verification."""
    counts = [len(content.tokens) for content in contents]
    n = max(counts)
    tokens = placed([[*c.tokens, *[-1] * (n - len(c.tokens))] for c in contents], device, torch.long)
    if all(content.nodes is None for content in contents):
        tree, depths = static_tree((1,) * n, device), counts
    else:
        rows = [list(range(len(c.tokens))) if c.nodes is None else list(c.nodes) for c in contents]
        depths = [max(depths_of(row), default=0) for row in rows]
        # Shorter rows are filled up with children of the root, whose tokens, -1, are never accepted.
        parents = np.array([[*row, *[0] * (n - len(row))] for row in rows])
        most = max(np.bincount(row).max() for row in parents)
        tree = tree_of(placed(parents, device), max(depths), int(most))
    return Drafts(tree, tokens, counts, depths, _stacked([content.distributions for content in contents], device))


def _stacked(weights: Sequence[np.ndarray | None], device: torch.device) -> torch.Tensor | None:
    """Stack distributions (inner nodes, V) of rows, the shorter ones filled up; None where they were not sent."""
    known = [rows for rows in weights if rows is not None]
    if len(known) < len(weights):
        return None
    inner = max(len(rows) for rows in known)
    return placed(np.stack([np.pad(rows, ((0, inner - len(rows)), (0, 0))) for rows in known]), device)
