"""A feed: the new tokens of some rows in one pass of a model, with their places and what they see.

Tokens of all rows form one flat batch, without padding. Only attention works row by row, and gathers queries of unequal
numbers into a rectangle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from specfleet.engine.decoding.placing import placed


@dataclass(frozen=True, slots=True)
class Nodes:
    """Speculated tokens of a pass: stored from `offset` beyond each row's committed tokens on.

    - `attended` (rows or 1, nodes, offset + nodes): the speculated tokens of its row that a node sees, itself included;
      None for a chain, in which it sees all up to itself.
    - `depths` (rows or 1, nodes): distance of its position from the committed tokens.
    - `above` (rows or 1, nodes): in a growing draft, the node of the last level that a node is below.
    """

    offset: int
    attended: torch.Tensor | None = None
    depths: torch.Tensor | None = None
    above: torch.Tensor | None = None

    def of_rows(self, first: int, last: int) -> "Nodes":
        """Return the nodes of rows first .. last - 1 only."""
        if self.attended is None or self.depths is None:
            return self
        attended, depths = (part if len(part) == 1 else part[first:last] for part in (self.attended, self.depths))
        return Nodes(self.offset, attended, depths)


@dataclass(frozen=True, slots=True)
class Feed:
    """N new tokens of B rows, at most T each, over the first places 0 .. W - 1 of their rows: `places` (W,).

    - `slots` (N,): the places of their keys and values.
    - `positions` (N,): the positions of the tokens.
    - `mask` (B, T, W): what each token sees; None for a chain, in which it sees all places up to its position.
    - `gather` (B x T,): the token of each query of the rectangle, if rows have different numbers of tokens.
    - `scatter` (N,): the query of each token, in the same case; `counts` (B,): the tokens of each row.
    - `blocks` (B x blocks of a row,): where the rows are, if their places are not side by side.
    """

    rows: slice
    slots: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    mask: torch.Tensor | None = None
    gather: torch.Tensor | None = None
    scatter: torch.Tensor | None = None
    counts: Sequence[int] | None = None
    blocks: torch.Tensor | None = None

    @property
    def feeds(self) -> "tuple[Feed, ...]":
        """The feed itself: the only one of its pass."""
        return (self,)

    @property
    def batch(self) -> int:
        """B, the number of rows."""
        return int(self.rows.stop - self.rows.start)

    @property
    def row_counts(self) -> Sequence[int]:
        """The number of tokens of each row."""
        return [len(self.slots) // self.batch] * self.batch if self.counts is None else self.counts

    @property
    def width(self) -> int:
        """W, the number of places that are read of each row."""
        return len(self.places)

    @property
    def visible(self) -> torch.Tensor | None:
        """What each token sees (B, T, W); None for everything."""
        if self.mask is None and len(self.slots) == 1:
            return None
        return self.mask if self.mask is not None else self.up_to_itself()

    def up_to_itself(self) -> torch.Tensor:
        """What each token of a chain sees: (B, T, W)."""
        positions = self.positions if self.gather is None else self.positions[self.gather]
        return self.places <= positions.view(self.batch, -1, 1)

    def within(self, window: int) -> torch.Tensor | None:
        """What each token sees of the last `window` tokens, itself included: (B, T, W); None for everything.

        A token sees one text up to itself, in the order of places: the committed tokens and, in a tree, its ancestors.
        So the window covers the last places that it sees, for any width of tree and padding.
        """
        attended = self.visible
        if self.width <= window:
            return attended
        if attended is None:
            return (self.places >= self.width - window)[None, None]
        newer = attended.flip(-1).cumsum(-1).flip(-1)  # tokens seen from a place on
        return attended & (newer <= window)


@dataclass(frozen=True, slots=True)
class Joined:
    """Feeds of several groups of rows, one after the other in one pass: only attention works group by group."""

    feeds: tuple[Feed, ...]

    @property
    def positions(self) -> torch.Tensor:
        """The positions of all tokens."""
        return torch.cat([feed.positions for feed in self.feeds])

    @property
    def width(self) -> int:
        """The number of places that are read of the longest row."""
        return max(feed.width for feed in self.feeds)


def make_feed(
    rows: slice,
    lengths: Sequence[int],
    counts: Sequence[int],
    nodes: Nodes | None,
    capacity: int,
    numbers: torch.Tensor,
    paddings: Sequence[int] | None = None,
) -> Feed:
    """Return the feed of `counts` new tokens of `rows` with `lengths` committed ones.

    A row has `capacity` places; the first `paddings` are empty. `numbers` counts all places of all rows.
    """
    offset, most = nodes.offset if nodes else 0, max(counts)
    padding = [0] * len(lengths) if paddings is None else paddings
    starts = [pad + length + offset for pad, length in zip(padding, lengths, strict=True)]
    width = max(starts) + most
    is_chain = nodes is None or nodes.attended is None
    if len(lengths) == 1 and is_chain and not padding[0]:  # the frequent case, with views alone
        begin = rows.start * capacity + starts[0]
        positions = numbers[starts[0] : width]
        return Feed(rows, numbers[begin : begin + most], positions, numbers[:width])
    firsts = [row * capacity + start for row, start in enumerate(starts, rows.start)]
    begins = placed([starts, firsts, padding], numbers.device)  # as one tensor: every small copy costs a launch
    positions, slots = begins[:2, :, None] + numbers[:most]  # (B, T) each
    mask = None
    if nodes is not None and nodes.attended is not None and nodes.depths is not None:
        ends = begins[0] - offset  # of the committed tokens
        mask = tree_mask(ends, nodes.attended, numbers[:width])
        positions = ends[:, None] + nodes.depths
    feed = Feed(rows, slots.flatten(), positions.flatten(), numbers[:width], mask)
    if any(padding):
        empty = begins[2, :, None]
        attended = (feed.up_to_itself() if mask is None else mask) & (feed.places >= empty)[:, None]
        feed = replace(feed, mask=attended, positions=(positions - empty).flatten())
    return feed if min(counts) == most else ragged(feed, counts, most)


def tree_mask(lengths: torch.Tensor, attended: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the mask of a tree: a node sees the committed tokens, and the speculated ones in `attended`.

    Shapes: lengths (B,), seen (B or 1, T, S) over the S places beyond each row's length, places (W,), result (B, T, W).
    """
    beyond = places - lengths[:, None]  # (B, W)
    among = beyond.clamp(0, attended.shape[-1] - 1)[:, None].expand(-1, attended.shape[1], -1)
    visible = attended.expand(len(lengths), -1, -1).gather(2, among)
    inside = ((beyond >= 0) & (beyond < attended.shape[-1]))[:, None]
    return (beyond < 0)[:, None] | (visible & inside)


def in_rectangle(counts: Sequence[int], most: int) -> list[int]:
    """Return the places of the first `counts` tokens of each row in a flattened rectangle with `most` tokens a row."""
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
    return replace(feed, slots=slots, positions=positions, gather=gather, scatter=scatter, counts=counts)
