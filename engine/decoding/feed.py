"""A feed: some new tokens of some rows on their way through a model, where they are stored and what they see.

Tokens of all rows form one flat batch, without padding. Only attention, which works row by row, gathers queries of
unequal numbers into a rectangle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.decoding.placing import placed


@dataclass(frozen=True, slots=True)
class Nodes:
    """Speculated tokens that are fed: stored from `offset` beyond each row's committed tokens on.

    `seen` (rows or 1, nodes, offset + nodes): which speculated tokens of its row a node sees, itself included; None for
    all up to itself, a chain. `depths` (rows or 1, nodes): how far its position lies beyond the committed tokens.
    """

    offset: int
    seen: torch.Tensor | None = None
    depths: torch.Tensor | None = None

    def of_rows(self, first: int, last: int) -> "Nodes":
        """Return the nodes of rows first .. last - 1 only."""
        if self.seen is None or self.depths is None:
            return self
        seen, depths = (part if len(part) == 1 else part[first:last] for part in (self.seen, self.depths))
        return Nodes(self.offset, seen, depths)


@dataclass(frozen=True, slots=True)
class Feed:
    """N new tokens of B rows, at most T each, over the first places 0 .. W - 1 of their rows: `places` (W,).

    `slots` (N,): where their keys and values go; `positions` (N,); `mask` (B, T, W): what each token sees, None for a
    chain, whose tokens see all places up to their position. Where numbers of tokens differ between rows: `gather`
    (B x T,) finds each query of the rectangle among the tokens, `scatter` (N,) each token in the rectangle.
    """

    rows: slice
    slots: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    mask: torch.Tensor | None = None
    gather: torch.Tensor | None = None
    scatter: torch.Tensor | None = None

    @property
    def batch(self) -> int:
        """B, how many rows."""
        return int(self.rows.stop - self.rows.start)

    @property
    def width(self) -> int:
        """W, how many places of each row are read."""
        return len(self.places)

    @property
    def visible(self) -> torch.Tensor | None:
        """What each token sees (B, T, W); None for everything."""
        if self.mask is None and len(self.slots) == 1:
            return None
        return self.mask if self.mask is not None else self.up_to_itself()

    @property
    def is_beginning(self) -> bool:
        """Whether these are the first tokens of one row, a chain after nothing."""
        return self.mask is None and self.batch == 1 and len(self.slots) == self.width > 1

    def up_to_itself(self) -> torch.Tensor:
        """What each token of a chain sees: (B, T, W)."""
        return self.places <= self.positions.view(self.batch, -1, 1)

    def within(self, window: int) -> torch.Tensor | None:
        """What each token sees that lies among the last `window` tokens, itself included: (B, T, W); None: everything.

        What a token sees is one text up to itself, in the order of places: the committed tokens and, in a tree, its
        ancestors. So the window holds the last places that it sees, however wide tree and padding are.
        """
        seen = self.visible
        if self.width <= window:
            return seen
        if seen is None:
            return (self.places >= self.width - window)[None, None]
        newer = seen.flip(-1).cumsum(-1).flip(-1)  # tokens seen from a place on
        return seen & (newer <= window)


def feed_of(
    rows: slice,
    lengths: Sequence[int],
    counts: Sequence[int],
    nodes: Nodes | None,
    capacity: int,
    numbers: torch.Tensor,
    paddings: Sequence[int] | None = None,
) -> Feed:
    """Return the feed of `counts` new tokens of `rows` that hold `lengths` committed ones.

    A row has `capacity` places, of which `paddings` at its begin hold nothing; `numbers` counts all places of all rows.
    """
    offset, most = nodes.offset if nodes else 0, max(counts)
    padding = [0] * len(lengths) if paddings is None else paddings
    starts = [pad + length + offset for pad, length in zip(padding, lengths, strict=True)]
    width = max(starts) + most
    is_chain = nodes is None or nodes.seen is None
    if len(lengths) == 1 and is_chain and not padding[0]:  # the frequent case, by views alone
        begin = rows.start * capacity + starts[0]
        positions = numbers[starts[0] : width]
        return Feed(rows, numbers[begin : begin + most], positions, numbers[:width])
    firsts = [row * capacity + start for row, start in enumerate(starts, rows.start)]
    begins = placed([starts, firsts, padding], numbers.device)  # as one tensor: every small copy costs a launch
    positions, slots = begins[:2, :, None] + numbers[:most]  # (B, T) each
    mask = None
    if nodes is not None and nodes.seen is not None and nodes.depths is not None:
        ends = begins[0] - offset  # of the committed tokens
        mask = tree_mask(ends, nodes.seen, numbers[:width])
        positions = ends[:, None] + nodes.depths
    feed = Feed(rows, slots.flatten(), positions.flatten(), numbers[:width], mask)
    if any(padding):
        empty = begins[2, :, None]
        seen = (feed.up_to_itself() if mask is None else mask) & (feed.places >= empty)[:, None]
        feed = replace(feed, mask=seen, positions=(positions - empty).flatten())
    return feed if min(counts) == most else ragged(feed, counts, most)


def tree_mask(lengths: torch.Tensor, seen: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Every node sees the committed tokens, and of the speculated ones those in `seen`.

    Shapes: lengths (B,), seen (B or 1, T, S) over the S places beyond each row's length, places (W,), result (B, T, W).
    """
    beyond = places - lengths[:, None]  # (B, W)
    among = beyond.clamp(0, seen.shape[-1] - 1)[:, None].expand(-1, seen.shape[1], -1)
    visible = seen.expand(len(lengths), -1, -1).gather(2, among)
    inside = ((beyond >= 0) & (beyond < seen.shape[-1]))[:, None]
    return (beyond < 0)[:, None] | (visible & inside)


def in_rectangle(counts: Sequence[int], most: int) -> list[int]:
    """Where the first `counts` tokens of each row lie in a flattened rectangle with `most` a row."""
    return [row * most + i for row, count in enumerate(counts) for i in range(count)]


def ragged(feed: Feed, counts: Sequence[int], most: int) -> Feed:
    """Return the feed of the first `counts` tokens of each row of a rectangular feed with `most` tokens a row."""
    queries = in_rectangle(counts, most)
    gather = [0] * (len(counts) * most)
    for number, place in enumerate(queries):
        gather[place] = number
    both = placed([*queries, *gather], feed.slots.device)
    scatter, gather = both[: len(queries)], both[len(queries) :]
    slots, positions = feed.slots[scatter], feed.positions[scatter]
    return replace(feed, slots=slots, positions=positions, mask=feed.visible, gather=gather, scatter=scatter)
