"""Aligned rows for batch rules that need one rectangle: padding on the left, and a common end.

EqSpec and ExSpec keep their caches so (Batch Speculative Decoding Done Right, section 3). Padding is never read: masks
leave it out, and positions count from a row's first token. Rows with unequal acceptance must be unpadded and padded
again (`realign`), which copies all their tokens. Rows with a common end, padding included, form a batch by one copy.
The batch of the last round needs no copy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from specfleet.engine.decoding.cache import CacheShape, RowCache
from specfleet.engine.decoding.feed import Feed, Nodes, make_feed

HEADROOM = 64  # minimum of free tokens after a copy
WASTE = 4  # a block may use memory of at most so many times its size
SPARES = 2  # blocks kept for the next copies: one for each of two alternating batches


@dataclass(slots=True, eq=False)
class _Block:
    """Places for some rows, (layers, 2, rows, tokens, heads, size), at the beginning of their `memory` (numbers,)."""

    places: torch.Tensor
    memory: torch.Tensor


@dataclass(slots=True)
class _Row:
    """The place of a row: number `index` of a block, after `padding` places."""

    block: _Block
    index: int
    padding: int = 0


class AlignedCache(RowCache):
    """Rows in blocks: the current batch, and blocks of earlier batches with other rows of the pool.

    The largest unused blocks are kept for the next copies: fresh memory of this size costs a processor as much as the
    copy itself, page by page.
    """

    uniform = True

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, dtype, device)
        self.rows: dict[int, _Row] = {}
        self.batch: list[int] = []  # tags of the rows of `storage`
        self.spare: list[torch.Tensor] = []  # unused memory, each (numbers,), smallest first
        self.numbers = torch.arange(0, device=self.device)

    def open(self, tag: int, tokens: int = 0) -> None:
        """Begin an empty row in a block of its own; `tokens`: how many its prompt has. ValueError if it is open."""
        super().open(tag)
        self.rows[tag] = _Row(self._block(1, tokens), 0)

    def close(self, tag: int) -> None:
        """End a row; its block is freed with the last of its rows."""
        block = self.rows.pop(tag).block
        super().close(tag)
        self.batch = []
        self._spare([block])

    def place(self, tags: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None) -> Feed:
        """Assemble the rows, and return the feed of `counts` new tokens of each."""
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
        return make_feed(slice(0, len(tags)), starts, counts, nodes, capacity, self.numbers, paddings)

    def realign(self, tags: Sequence[int]) -> None:
        """Unpad rows and pad them anew, so that they end together."""
        longest = max(self.lengths[tag] for tag in tags)
        self._assemble(tags, [longest - self.lengths[tag] for tag in tags], longest)

    def begin(self, tag: int) -> int:
        """The place of a row's first token beyond the committed ones, within the row."""
        row = self.rows[tag]
        return row.index * row.block.places.shape[3] + row.padding + self.lengths[tag]

    @torch.inference_mode()
    def _assemble(self, tags: Sequence[int], paddings: Sequence[int], width: int) -> None:
        """Copy rows into a new block, each after its new padding."""
        block = self._block(len(tags), width)
        left = [self.rows[tag].block for tag in tags]
        for index, (tag, padding) in enumerate(zip(tags, paddings, strict=True)):
            old, length = self.rows[tag], self.lengths[tag]
            kept = old.block.places[:, :, old.index, old.padding : old.padding + length]
            block.places[:, :, index, padding : padding + length] = kept
            self.rows[tag] = _Row(block, index, padding)
        self.adopt(block.places)
        self.batch = list(tags)
        self._spare(left)

    def _block(self, rows: int, tokens: int) -> _Block:
        """Return a block for `rows` of `tokens` and more; spare memory has finite values of earlier rows, which are
        masked out."""
        places = (tokens // HEADROOM + 2) * HEADROOM  # in steps, so that a growing batch fits its last memory
        numbers = rows * places * self.shape.numbers
        fits = [numbers <= memory.numel() <= WASTE * numbers for memory in self.spare]
        fitting = fits.index(True) if any(fits) else None
        if fitting is None:
            memory = torch.zeros(numbers, dtype=self.dtype, device=self.device)
        else:
            memory = self.spare.pop(fitting)
        return _Block(memory[:numbers].view(self.dimensions(rows, places)), memory)

    def _spare(self, blocks: Iterable[_Block]) -> None:
        """Keep the memory of blocks without rows, the largest few."""
        held = {row.block for row in self.rows.values()}
        freed = [block.memory for block in set(blocks) - held]
        self.spare = sorted([*self.spare, *freed], key=torch.Tensor.numel)[-SPARES:]
