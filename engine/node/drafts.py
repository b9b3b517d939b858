"""Drafts as the content of messages and as tensors: from one to the other, and parts of a draft."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specfleet.engine.decoding.greedy import path_in_text
from specfleet.engine.decoding.grow import Drafts, no_drafts
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.trees import make_tree, static_tree
from specfleet.engine.net.content import NOTHING, Content, padded
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import depths_of


def cut_to(content: Content, levels: int) -> Content:
    """Return the first levels of a draft, tokens of a chain: a step with little room verifies no more.

    The nodes of a tree are in order of their levels.
    """
    nodes, kept = content.nodes, min(levels, len(content.tokens))
    inner = kept
    if nodes is not None:
        kept = sum(depth <= levels for depth in depths_of(nodes))
        nodes = nodes[:kept]
        inner = max(nodes, default=-1) + 1
    if kept == len(content.tokens):
        return content
    if not kept:
        return NOTHING
    weights = None if content.distributions is None else content.distributions[:inner]
    return Content(content.tokens[:kept], nodes, weights, rule=content.rule)


def said_by(content: Content, text: Sequence[int]) -> list[int]:
    """Return the nodes of a draft, from the root on, that say the tokens of a text, as many as do."""
    levels = len(content.tokens) if content.nodes is None else max(depths_of(content.nodes), default=0)
    return path_in_text(content.tokens, [*text, *[-1] * (levels + 1)], content.nodes)[: len(text)]


def below(content: Content, node: int) -> tuple[Content, list[int]]:
    """Return the part of a draft below a node, and the numbers that its root and its nodes had before."""
    parents = range(len(content.tokens)) if content.nodes is None else content.nodes
    place = {node: 0}
    for number, parent in enumerate(parents, start=1):
        if parent in place and number not in place:
            place[number] = len(place)
    numbers = list(place)
    tokens = [content.tokens[number - 1] for number in numbers[1:]]
    if not tokens:
        return NOTHING, numbers
    nodes = [place[parents[number - 1]] for number in numbers[1:]]
    weights = content.distributions
    if weights is not None:
        weights = weights[numbers[: max(nodes) + 1]]
    return Content(tokens, None if content.nodes is None else nodes, weights, rule=content.rule), numbers


def contents_of(drafts: Drafts) -> list[Content]:
    """Return each row of `drafts` as the content of its message."""
    tree, n = drafts.tree, drafts.tree.nodes
    copied = drafts.tokens if tree.is_chain else torch.cat([drafts.tokens, tree.parents.expand_as(drafts.tokens)], 1)
    weights = None if drafts.q is None else drafts.q.cpu().numpy()
    contents = []
    for index, (row, count) in enumerate(zip(copied.tolist(), drafts.counts, strict=True)):
        nodes = None if tree.is_chain else row[n : n + count]
        inner = count if nodes is None else max(nodes, default=-1) + 1
        of_row = None if weights is None else weights[index, :inner]
        contents.append(Content(row[:count], nodes, of_row, rule=drafts.rule or ""))
    return contents


def drafts_of(contents: Sequence[Content], device: torch.device) -> Drafts:
    """Put the contents of messages together as one batch, for verification.

    InputError if drafts were drawn for different rules, which no target can verify together.
    """
    rules = {content.rule for content in contents if content.tokens}
    if len(rules) > 1:
        drawn = " and ".join(sorted(rule or "nothing drawn" for rule in rules))
        raise InputError(f"drafts of one verification are drawn for different rules: {drawn}; allowed: the target's")
    counts = [len(content.tokens) for content in contents]
    if not any(counts):
        return no_drafts(len(contents), device)
    n = max(counts)
    tokens = placed([[*c.tokens, *[-1] * (n - len(c.tokens))] for c in contents], device, torch.long)
    if all(content.nodes is None for content in contents):
        tree, depths, fans = static_tree((1,) * n, device), counts, [1] * len(contents)
    else:
        rows = [list(range(len(c.tokens))) if c.nodes is None else list(c.nodes) for c in contents]
        depths = [max(depths_of(row), default=0) for row in rows]
        fans = [int(np.bincount(row).max()) if row else 1 for row in rows]
        # Shorter rows get a chain below their last node; its tokens are -1 and never accepted.
        parents = np.array([[*row, *range(len(row), n)] for row in rows])
        tree = make_tree(placed(parents, device), max(depths), max(fans))
    q = _stacked([content.distributions for content in contents if content.tokens], counts, device)
    rule: Any = next(iter(rules), "") or None
    return Drafts(tree, tokens, counts, depths, q, fans=fans, rule=rule)


def _stacked(weights: Sequence[np.ndarray | None], counts: Sequence[int], device: torch.device) -> torch.Tensor | None:
    """Stack distributions (inner nodes, V) of rows, padded to the largest, zeros for rows without a draft (`counts` is
    0); None without any."""
    present = [rows for rows in weights if rows is not None]
    if not present:
        return None
    following, (inner, width) = iter(present), np.max([rows.shape for rows in present], axis=0).tolist()
    nothing = np.zeros((0, present[0].shape[1]), dtype=present[0].dtype)
    every = [next(following) if count else nothing for count in counts]
    return placed(np.stack([padded(rows, inner, width) for rows in every]), device)
