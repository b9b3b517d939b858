"""Aligned rows, as batches need them that are one rectangle: padding on the left, and a common end.

This is how EqSpec and ExSpec keep their caches (Batch Speculative Decoding Done Right, section 3), here without the
padding's content ever being looked at: masks leave it out, positions count from a row's first token. Rows that
accepted unequally must be unpadded and padded anew (`realign`), which copies everything they hold; rows that happen to
end alike, padding included, form a batch by one copy; the batch of the last round is taken as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.cache import RowCache
from engine.feed import Feed, Nodes, feed_of
from engine.telemetry import timed

HEADROOM = 64  # tokens that a new batch can take before it is copied again


@dataclass(slots=True)
class _Row:
    """Where a row lies: number `index` of a `block` (layers, 2, rows, tokens, heads, size), after `padding` places."""

    block: torch.Tensor
    index: int
    padding: int = 0


class AlignedCache(RowCache):
    """Rows in blocks: the batch that is fed, and blocks of earlier batches that rows of the pool still lie in."""

    uniform = True

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # the same arguments
        self.rows: dict[int, _Row] = {}
        self.batch: list[int] = []  # tags of the rows of `storage`
        self.numbers = torch.arange(0, device=self.device)
        self.assembling_s = 0.0  # spent on bringing rows together, whatever the reason

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all blocks that rows lie in."""
        blocks = {id(row.block): row.block for row in self.rows.values()}
        return sum(block.numel() * block.element_size() for block in blocks.values())

    def open(self, tag: int, tokens: int = 0) -> None:
        """Begin an empty row in a block of its own; `tokens`: how many its prompt has."""
        self.rows[tag] = _Row(self.new_storage(1, tokens + HEADROOM).zero_(), 0)
        self.lengths[tag] = 0

    def close(self, tag: int) -> None:
        """End a row; its block goes with the last of its rows."""
        del self.rows[tag], self.lengths[tag]
        self.batch = []

    def runs(self, tags: Sequence[int]) -> list[tuple[int, int]]:
        """One run: rows are brought together when they are fed."""
        return [(0, len(tags))]

    def place(self, tags: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None) -> Feed:
        """Say where `counts` new tokens of each of the rows go, and what they see; bring the rows together before."""
        ends = {self.rows[tag].padding + self.lengths[tag] for tag in tags}
        width = max(ends) + max(counts) + (nodes.offset if nodes else 0)
        if len(ends) > 1:
            self.realign(tags)
            return self.place(tags, counts, nodes)
        if self.batch != list(tags) or width > self.storage.shape[3]:
            self._assemble(tags, [self.rows[tag].padding for tag in tags], width)
        capacity = self.storage.shape[3]
        if len(self.numbers) < len(tags) * capacity:
            self.numbers = torch.arange(len(tags) * capacity, device=self.device)
        paddings = [self.rows[tag].padding for tag in tags]
        starts = [self.lengths[tag] for tag in tags]
        return feed_of(slice(0, len(tags)), starts, counts, nodes, capacity, self.numbers, paddings)

    def realign(self, tags: Sequence[int]) -> None:
        """Unpad rows and pad them anew, so that they end together."""
        longest = max(self.lengths[tag] for tag in tags)
        self._assemble(tags, [longest - self.lengths[tag] for tag in tags], longest)

    def begin(self, tag: int) -> int:
        """Where the first token beyond the committed ones of a row of the batch lies in it."""
        row = self.rows[tag]
        return row.index * row.block.shape[3] + row.padding + self.lengths[tag]

    def _assemble(self, tags: Sequence[int], paddings: Sequence[int], width: int) -> None:
        """Copy rows into a new block, each after its new padding."""
        self.assembling_s += timed(lambda: self._copy(tags, paddings, width), self.device)[1]

    @torch.inference_mode()
    def _copy(self, tags: Sequence[int], paddings: Sequence[int], width: int) -> None:
        block = self.new_storage(len(tags), width + HEADROOM)
        for index, (tag, padding) in enumerate(zip(tags, paddings, strict=True)):
            old, length = self.rows[tag], self.lengths[tag]
            kept = old.block[:, :, old.index, old.padding : old.padding + length]
            block[:, :, index, :padding] = 0  # masked out, and still to be finite
            block[:, :, index, padding : padding + length] = kept
            block[:, :, index, padding + length :] = 0
            self.rows[tag] = _Row(block, index, padding)
        self.adopt(block)
        self.batch = list(tags)
