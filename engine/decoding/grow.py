"""Growing drafts: a chain, a static tree or EAGLE-2's dynamic tree, for all rows of a batch at once.

`extend` runs the draft model on new nodes; this module chooses the tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from specfleet.engine.decoding.feed import Nodes
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.rules import Rule, normalised
from specfleet.engine.decoding.sampling import Sampling, Uniforms, distributions, working
from specfleet.engine.decoding.trees import Tree, make_tree, static_tree
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import Shape, depths_of

BROKEN = -2  # replaces a token if its logits are not numbers
Extend = Callable[[torch.Tensor, Nodes], torch.Tensor]
"""Feed nodes (B, w) below those of the last level; return logits (B, w, V)."""
Stops = Callable[[int, float], bool]
"""Whether row i stops after a token; its distribution has that entropy, in nats."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts of B rows.

    - `tokens` (B, n): -1 beyond a row's own `counts`.
    - `depths`: levels of each row.
    - `q` (B, inner nodes, V): the distributions of the children of nodes 0, 1, ..., if the rule needs them, as the
      float16 weights of the wire. Both ends use these, normalised, so rounding causes no bias.
    - `logits` (B, inner nodes, V): the drafter's, if requested.
    - `fed`: number of nodes that the drafter fed, if these are the first ones in order; else (B, n) the offset of each
      node beyond the committed tokens, -1 for never.
    - `host_places`: a copy of `fed` on the host, after its first use.
    - `fans`: most children of a node of each row; empty for as many as the tree's.
    - `rule`: of the random draws; None for greedy drafts, which every rule can verify.
    - `drafter`: its name in errors.
    """

    tree: Tree
    tokens: torch.Tensor
    counts: Sequence[int]
    depths: Sequence[int]
    q: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    fed: int | torch.Tensor = 0
    host_places: list[list[int]] = field(default_factory=list)
    fans: Sequence[int] = ()
    rule: Rule | None = None
    drafter: str = "the drafter"

    def places(self, row: int, path: Sequence[int]) -> list[int]:
        """Offsets beyond the committed tokens of the nodes of a path that the drafter has fed."""
        if isinstance(self.fed, int):
            return [node - 1 for node in path if node <= self.fed]
        if not self.host_places:
            self.host_places.extend(self.fed.tolist())  # all rows at once: every copy waits for the device
        places = self.host_places[row]
        return [places[node - 1] for node in path if places[node - 1] >= 0]


@dataclass(frozen=True, slots=True)
class ChildSampling:
    """How children of nodes are drawn: the sampling of each row, the random numbers, and whether with replacement."""

    rows: Sequence[Sampling]
    chance: Uniforms
    replace: bool


def grow_static(
    shape: Shape,
    depths: Sequence[int],
    logits: torch.Tensor,
    extend: Extend,
    drawing: ChildSampling | None = None,
    stops: Stops | None = None,
    signals: bool = False,
) -> Drafts:
    """Draft a chain or a static tree from the logits (B, V) after the root.

    - `depths`: levels of each row.
    - `drawing`: random draws; None takes the drafter's best tokens.
    - `stops`: may end chains sooner.
    - `signals`: whether the logits are kept, for signals of the drafted tokens.
    """
    device, children = logits.device, shape.children(max(depths))
    counts = [shape.nodes(depth) for depth in depths]
    tree = static_tree(tuple(children), device)
    level = logits[:, None]  # (B, nodes of the last level, V)
    tokens, q, drafted_from = [], [], []
    last, first = 0, 1  # numbers of the first nodes of the last level and of the next one
    for number, count in enumerate(children):
        if signals:
            drafted_from.append(level)
        if drawing is not None:
            exact = distributions(level, drawing.rows)
            q.append(exact.half())
            chosen = drawn(q[-1].to(exact.dtype), count, drawing.chance, drawing.replace)
            best = level.amax(-1, keepdim=True)
        else:
            best, chosen = level.topk(count, -1) if count > 1 else level.max(-1, keepdim=True)
        tokens.append(mark_broken(chosen, best).flatten(1))  # (B, w)
        if stops is not None:
            counts = stopped(counts, number + 1, entropies(level[:, 0]), stops)
            if max(counts) <= number + 1:
                tree = static_tree(tuple(children[: number + 1]), device)
                break
        if number + 1 < len(children):
            end = first + tokens[-1].shape[1]
            if tree.is_chain:
                nodes = Nodes(number, above=tree.parents[:, :1])  # the only node of the last level
            else:
                above = tree.parents[:, first - 1 : end - 1] - last
                nodes = Nodes(first - 1, tree.ancestors[:, first:end, 1:end], tree.depths[:, first:end] - 1, above)
            level = extend(tokens[-1], nodes)
            last, first = first, end
    drafted = torch.cat(tokens, 1)
    numbers = torch.arange(tree.nodes, device=device)
    if min(counts) < tree.nodes:
        drafted = torch.where(numbers < placed(counts, device)[:, None], drafted, -1)
    levels = counts if tree.is_chain else depths
    return Drafts(
        tree, drafted, counts, levels,
        q=torch.cat(q, 1) if drawing is not None else None,
        logits=torch.cat(drafted_from, 1) if signals else None,
        fed=first - 1, fans=[max(children[:depth], default=1) for depth in depths],
        rule=None if drawing is None else "rejection" if drawing.replace else "without-replacement",
    )  # fmt: skip


def stopped(counts: Sequence[int], drafted: int, entropy: torch.Tensor, stops: Stops) -> list[int]:
    """Return the lengths of chains with `drafted` tokens; `entropy` is that of their last distributions."""
    return [
        min(count, drafted) if drafted < count and stops(row, nats) else count
        for row, (count, nats) in enumerate(zip(counts, entropy.tolist(), strict=True))
    ]


def grow_dynamic(shape: Shape, depths: Sequence[int], logits: torch.Tensor, extend: Extend) -> Drafts:
    """Draft EAGLE-2's trees (Li et al. 2024, section 4) from the logits (B, V) after the root.

    `depths`: levels of each row. Every level expands its `width` likeliest nodes by `width` children each; of all, the
    `most` likeliest remain. A parent is at least as likely as its child and stands before it, so these are trees.
    """
    B, device, depth = len(logits), logits.device, max(depths)
    width = min(shape.width, logits.shape[-1])
    rows = torch.arange(B, device=device)[:, None]
    # The candidates of all levels, in order: token, likelihood, parent candidate (-1: the root), place among the fed.
    likely, tokens = torch.log_softmax(working(logits), -1).topk(width, -1)  # (B, width)
    tokens = mark_broken(tokens, likely)
    parents = torch.full_like(tokens, -1)
    all_tokens, all_likely, all_parents = [tokens], [likely], [parents]
    fed_numbers = []
    attended = torch.zeros(B, width, 0, dtype=torch.bool, device=device)
    itself = torch.eye(width, dtype=torch.bool, device=device).expand(B, -1, -1)
    first = 0  # number of the level's first candidate
    above = torch.zeros(B, width, dtype=torch.long, device=device)
    for number in range(depth - 1):
        best = likely.topk(width, -1).indices  # (B, width): which of the level are expanded
        fed_numbers.append(first + best)
        above = above.gather(1, best)
        attended = torch.cat([attended[rows, above] if number else attended, itself], -1)
        nodes = Nodes(number * width, attended, torch.full((1, width), number, device=device), above)
        level = extend(tokens.gather(1, best), nodes)  # (B, width, V)
        gained, tokens = torch.log_softmax(working(level), -1).topk(width, -1)  # (B, width, width)
        tokens = mark_broken(tokens, gained)
        likely = (likely.gather(1, best)[:, :, None] + gained).flatten(1)
        tokens = tokens.flatten(1)
        parents = fed_numbers[-1].repeat_interleave(width, 1)
        first += all_tokens[-1].shape[1]
        above = torch.arange(width, device=device).repeat_interleave(width).expand(B, -1)
        all_tokens.append(tokens)
        all_likely.append(likely)
        all_parents.append(parents)
    tokens, likely, parents = (torch.cat(parts, 1) for parts in (all_tokens, all_likely, all_parents))
    n = min(shape.most, tokens.shape[1])
    counts = [min(shape.most, width + (levels - 1) * width**2) if levels else 0 for levels in depths]
    # Nodes below a row's own depth come last: their candidates have the highest numbers.
    if min(depths) < depth:
        level_of = (torch.arange(tokens.shape[1], device=device) - width).div(width**2, rounding_mode="floor") + 1
        likely = likely.masked_fill(level_of >= placed(depths, device)[:, None], -torch.inf)
    # Stable: of equally likely candidates the earlier, which may be the parent of the later.
    chosen = likely.sort(dim=-1, descending=True, stable=True).indices[:, :n].sort(-1).values  # (B, n)
    number_of = torch.zeros(B, tokens.shape[1] + 1, dtype=torch.long, device=device)  # the last, for the root, stays 0
    number_of.scatter_(1, chosen, torch.arange(1, n + 1, device=device).expand(B, -1))
    drafted, above = tokens.gather(1, chosen), number_of.gather(1, parents.gather(1, chosen) % (tokens.shape[1] + 1))
    if min(counts) < n:  # shorter rows get a chain below their last node, which has no child of its own
        numbers = torch.arange(n, device=device)
        within = numbers < placed(counts, device)[:, None]
        drafted, above = torch.where(within, drafted, -1), torch.where(within, above, numbers)
    tree = make_tree(above, depth, width)
    place = torch.full_like(tokens, -1)
    if fed_numbers:
        fed = torch.cat(fed_numbers, 1)
        place.scatter_(1, fed, torch.arange(fed.shape[1], device=device).expand(B, -1))
    return Drafts(tree, drafted, counts, list(depths), fed=place.gather(1, chosen), fans=[width] * B)


def drawn(q: torch.Tensor, count: int, chance: Uniforms, replace: bool) -> torch.Tensor:
    """Draw `count` children of every node from q (B, w, V), with or without replacement: (B, w, count).

    Without replacement, -1 where q has no token left.
    """
    B, w, _ = q.shape
    left, columns = q.flatten(0, 1), []
    for chances in chance.spread(w, count):
        token = chances.draws(left)  # (B * w,)
        columns.append(token if replace else torch.where(left.sum(-1) > 0, token, -1))
        if not replace and count > 1:
            left = normalised(left.scatter(1, token[:, None], 0.0))
    return torch.stack(columns, 1).view(B, w, count)


def mark_broken(tokens: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """Return tokens (..., k) of the `best` logits (..., k); BROKEN where the largest, the first, is no number.

    The draft goes on, because a check here would wait for the device; `check_draft` finds them on the host.
    """
    return torch.where(best[..., :1] - best[..., :1] == 0, tokens, BROKEN)  # `isfinite` is four kernels


def check_draft(tokens: Sequence[int], parents: Sequence[int] | None, drafter: str, tag: int, length: int) -> None:
    """Raise InputError for a draft from logits that are not numbers.

    - `tokens`, `parents`: of its nodes; None for the parents of a chain.
    - `length`: number of tokens of the text of `tag` before it.
    """
    if min(tokens, default=0) > BROKEN:
        return
    first = next(number for number, token in enumerate(tokens) if token == BROKEN)
    depth = first + 1 if parents is None else depths_of(parents)[first]
    raise InputError(no_numbers(drafter, tag, length + depth - 1))


def no_numbers(model: str, tag: int, length: int) -> str:
    """Return the error line for logits of a model that are not numbers after the first `length` tokens of a text."""
    return (
        f"{model}: its logits after {length} tokens of stream {tag} are no numbers (NaN or infinite); look at its "
        "weights, or try precision = 'float32'"
    )


def entropies(logits: torch.Tensor) -> torch.Tensor:
    """Entropy of the softmax of logits (..., V), in nats: (...)."""
    return torch.special.entr(torch.softmax(logits.float(), -1)).sum(-1)


def no_drafts(rows: int, device: torch.device) -> Drafts:
    """Return empty drafts: their verification is plain decoding."""
    nothing = torch.zeros(rows, 0, dtype=torch.long, device=device)
    return Drafts(static_tree((), device), nothing, [0] * rows, [0] * rows)
