"""Lossless verification of draft chains and trees, all rows of a batch at once, on their device.

A rule walks down from the root. At each node p is the target's distribution, and the node's children are offered in
turn. The emitted token follows p exactly, for any drafter:

- `rejection`: children drawn from q independently, with replacement. Accept x with min(1, p(x) / q(x)), else go on with
  norm(max(0, p - q)). With one child a node this is the chain rule (Leviathan et al. 2023, algorithm 1), with several
  SpecInfer's (Miao et al. 2024).
- `without-replacement`: as before, and a rejected x also leaves q, which is renormalised (Sequoia, Chen et al. 2024).
- `top-k`: children are the drafter's best tokens, nothing is drawn. Accept x with p(x), else take it out of p.
- `match`: draw y from p; if it is a child, descend to it (SpecExec, Svirschevski et al. 2024). Needs no q.

If no child is accepted, the token comes from the rest of p; at a leaf, from p there: the bonus token.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from specfleet.engine.decoding.sampling import Uniforms
from specfleet.engine.decoding.trees import Tree

Rule = Literal["rejection", "without-replacement", "top-k", "match"]
NEEDS_Q = ("rejection", "without-replacement")  # rules that need the distributions of the children


@dataclass(frozen=True, slots=True)
class Walk:
    """The outcome of B drafts.

    `path` (B, levels), accepted nodes from the root on, then -1; `token` (B,), the target's own.
    """

    path: torch.Tensor
    token: torch.Tensor


def decisions(rule: Rule, levels: int, fan: int) -> int:
    """Return the maximum number of random decisions of a walk through `levels`, with at most `fan` children a node."""
    return levels + 1 if rule == "match" else levels * fan + 1


def decided_at(rule: Rule, levels: int, fan: int, widest: int) -> list[int]:
    """Return the decisions of a batch, with at most `widest` children a node, that belong to a row with `fan`.

    The last one draws the target's own token.
    """
    if rule == "match":
        return list(range(levels + 1))
    return [*(level * widest + child for level in range(levels) for child in range(fan)), levels * widest]


def verify(
    rule: Rule, tree: Tree, tokens: torch.Tensor, q: torch.Tensor | None, p: torch.Tensor, chance: Uniforms
) -> Walk:
    """Walk down the trees of B rows by a rule.

    - `tokens` (B, n): of the nodes; -1 beyond the nodes of a shorter row.
    - `q` (B, inner nodes, vocabulary): the distributions of the children of nodes 0, 1, ...
    - `p` (B, n + 1, vocabulary): the target's at the root and at every node.
    """
    if tree.is_chain and rule != "match":
        return _along_chain(tokens, q, p, chance)
    rows = torch.arange(len(p), device=p.device)
    children = tree.children.expand(len(p), -1, -1)
    node = torch.zeros_like(rows)
    left = p[:, 0]
    alive = torch.ones_like(rows, dtype=torch.bool)
    path = []
    for _ in range(tree.levels):
        here = children[rows, node]  # (B, K)
        if rule == "match":
            token = chance.draws(left)
            step, taken = _matched(here, tokens, token, alive)
        else:
            drawn_from = None if q is None else q[rows, node.clamp(max=q.shape[1] - 1)]
            step, taken, left = _offered(rule, here, tokens, drawn_from, left, alive, chance)
        path.append(torch.where(taken, step, -1))
        alive, node = taken, torch.where(taken, step, node)
        if rule == "match":
            # A row that left the tree keeps the token of its exit: the whole rest of p.
            emitted = torch.zeros_like(left).scatter_(1, token[:, None], 1.0)
            left = torch.where(taken[:, None], p[rows, node], emitted)
        else:
            left = torch.where(taken[:, None], p[rows, node], left)
    return Walk(torch.stack(path, 1) if path else rows.new_zeros(len(p), 0), chance.draws(left))


def _along_chain(tokens: torch.Tensor, q: torch.Tensor | None, p: torch.Tensor, chance: Uniforms) -> Walk:
    """Walk down chains: rules with one child a node are equal, and the rest of p is needed once, at the end."""
    n = tokens.shape[1]
    drafted = tokens.clamp(min=0)[:, :, None]
    acceptance = p[:, :n].gather(-1, drafted)[:, :, 0]
    if q is not None:
        acceptance = acceptance / q.gather(-1, drafted)[:, :, 0].clamp(min=torch.finfo(q.dtype).tiny)
    offered = acceptance * (tokens >= 0)
    alive = torch.ones(len(p), dtype=torch.bool, device=p.device)
    path = []
    for level in range(n):
        alive = chance.accepts(offered[:, level] * alive)
        path.append(torch.where(alive, level + 1, -1))
    walked = torch.stack(path, 1) if path else tokens
    stop = (walked > 0).sum(1)  # (B,): accepted tokens
    rows = torch.arange(len(p), device=p.device)
    left = p[rows, stop]
    if n:
        last = stop.clamp(max=n - 1)
        rejected = (stop < n) & (tokens[rows, last] >= 0)
        if q is None:
            remaining = normalised(left.scatter(1, drafted[rows, last], 0.0), left)
        else:
            remaining = residual(q[rows, last], left)
        left = torch.where(rejected[:, None], remaining, left)
    return Walk(walked, chance.draws(left))


def _matched(
    children: torch.Tensor, tokens: torch.Tensor, token: torch.Tensor, alive: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the child with `token`. Return it and whether there is one, (B,) each."""
    offered = tokens.gather(1, (children - 1).clamp(min=0))  # (B, K)
    matches = (children > 0) & (offered == token[:, None]) & alive[:, None]
    return children.gather(1, matches.long().argmax(1, keepdim=True))[:, 0], matches.any(1)


def _offered(
    rule: Rule,
    children: torch.Tensor,
    tokens: torch.Tensor,
    q: torch.Tensor | None,
    left: torch.Tensor,
    alive: torch.Tensor,
    chance: Uniforms,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Offer the children (B, K) to the rest of p, `left`, in order; return the accepted child, whether there is one,
    and the new rest."""
    step = torch.zeros_like(children[:, 0])
    taken = torch.zeros_like(alive)
    for place in range(children.shape[1]):
        child = children[:, place]
        x = tokens.gather(1, (child - 1).clamp(min=0)[:, None])  # (B, 1)
        offered = alive & ~taken & (child > 0) & (x[:, 0] >= 0)
        x = x.clamp(min=0)
        of_target = left.gather(1, x)[:, 0]
        if q is None:
            accepted = chance.accepts(of_target * offered)
            remaining = normalised(left.scatter(1, x, 0.0), left)
        else:
            of_drafter = q.gather(1, x)[:, 0]
            accepted = chance.accepts(of_target / of_drafter.clamp(min=torch.finfo(q.dtype).tiny) * offered)
            remaining = residual(q, left)
        rejected = (offered & ~accepted)[:, None]
        left = torch.where(rejected, remaining, left)
        if rule == "without-replacement":
            assert q is not None
            q = torch.where(rejected, normalised(q.scatter(1, x, 0.0), q), q)
        step = torch.where(accepted, child, step)
        taken = taken | accepted
    return step, taken, left


def residual(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Return norm(max(0, p - q)), the target's distribution after a rejection. Shapes: (B, vocabulary)."""
    return normalised((p - q).clamp(min=0), p)


def normalised(weights: torch.Tensor, otherwise: torch.Tensor | None = None) -> torch.Tensor:
    """Scale weights (..., vocabulary) to sum 1; where all are zero: `otherwise`, or zeros."""
    total = weights.sum(-1, keepdim=True)
    scaled = weights / total.clamp(min=torch.finfo(weights.dtype).tiny)
    return scaled if otherwise is None else torch.where(total > 0, scaled, otherwise)
