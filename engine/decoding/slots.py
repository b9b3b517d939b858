"""Slot-addressed rows: every row keeps its own length and place, independent of its neighbours.

Nothing is padded or realigned, and the place of a finished row is free at once.
"""

from collections.abc import Sequence

import torch

from specfleet.engine.decoding.cache import CacheShape, Group, RowCache
from specfleet.engine.decoding.feed import Feed, Joined, Nodes, make_feed
from specfleet.engine.decoding.pages import whole_pages

ROWS, TOKENS = 1, 512  # capacity at the start, if the need is unknown


class SlotCache(RowCache):
    """Open rows lie side by side from row 0 on in a pass, so that a batch of all of them is a view.

    A finished row leaves a hole for the next one; rows move into holes only for a pass of several rows.

    Memory for `rows` x `tokens` is allocated at once. It grows only if a row opens or gets longer than that: rows
    double, since each growth copies the storage and loses its CUDA graphs.

    - `pages`: whether attention reads rows in place, as pages; then a row has a multiple of `PAGE` places.
    """

    joins = True
    leads = False  # whether rows that share a pass move before all others: a graph has the first rows

    def __init__(
        self,
        shape: CacheShape,
        dtype: torch.dtype,
        device: torch.device,
        rows: int = ROWS,
        tokens: int = TOKENS,
        pages: bool = False,
    ) -> None:
        super().__init__(shape, dtype, device)
        self.pages = pages
        self.tags: list[int | None] = []  # by row; None for a hole
        self.holes: list[int] = []
        self.rows: dict[int, int] = {}  # by tag
        self.written: dict[int, int] = {}  # places of a row, by tag, up to its last pass: speculation may be kept later
        self.rows_allocated = self.tokens_allocated = 0
        self._allocate(rows, tokens)

    def open(self, tag: int, tokens: int = 0) -> None:
        """Begin an empty row that may need `tokens` tokens; ValueError if it is open."""
        super().open(tag)
        row = self.holes[-1] if self.holes else len(self.tags)
        if row == self.rows_allocated or tokens > self.tokens_allocated:
            rows = self.rows_allocated * (2 if row == self.rows_allocated else 1)
            self._allocate(rows, max(self.tokens_allocated, tokens))
        if self.holes:
            self.tags[self.holes.pop()] = tag
        else:
            self.tags.append(tag)
        self.rows[tag] = row
        self.written[tag] = 0

    @torch.inference_mode()
    def close(self, tag: int) -> None:
        """End a row."""
        hole = self.rows.pop(tag)
        if self.erases:
            self.storage[:, :, hole].zero_()
        self.tags[hole] = None
        self.holes.append(hole)
        del self.written[tag]
        super().close(tag)

    def close_up(self) -> None:
        """Move the last rows into holes."""
        if self.holes:
            self.lead(list(self.rows))
            del self.tags[len(self.rows) :]
            self.holes.clear()

    @torch.inference_mode()
    def lead(self, tags: Sequence[int]) -> None:
        """Bring the rows of `tags` before all others, each with a draft that may not be verified yet."""
        late = [self.rows[tag] for tag in tags if self.rows[tag] >= len(tags)]
        free = sorted(set(range(len(tags))) - {self.rows[tag] for tag in tags})
        for row, other in zip(late, free, strict=True):
            end = self.tokens_allocated if self.erases else max(self.written.values())
            here, there = self.storage[:, :, other, :end], self.storage[:, :, row, :end]
            left = there if self.tags[other] is None and not self.erases else here.clone()  # a hole has nothing to keep
            here.copy_(there)
            there.copy_(left)
            self.tags[row], self.tags[other] = self.tags[other], self.tags[row]
        self.rows = {tag: row for row, tag in enumerate(self.tags) if tag is not None}

    def in_order(self, tags: Sequence[int]) -> list[int]:
        """Return `tags` in the order of their rows, side by side."""
        self.close_up()
        if self.leads:
            self.lead(tags)
        return sorted(tags, key=self.rows.__getitem__)

    def runs(self, tags: Sequence[int]) -> list[tuple[int, int]]:
        """Cut `tags` into runs [first, last) that lie side by side."""
        if len(tags) > 1:
            self.close_up()
        cuts = [i for i in range(1, len(tags)) if self.rows[tags[i]] != self.rows[tags[i - 1]] + 1]
        return list(zip([0, *cuts], [*cuts, len(tags)], strict=True))

    def place(self, tags: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None) -> Feed:
        """Return the feed of `counts` new tokens of each of the rows, which lie side by side."""
        first = self.rows[tags[0]]
        starts = [self.lengths[tag] for tag in tags]
        offset = nodes.offset if nodes else 0
        for tag, start, count in zip(tags, starts, counts, strict=True):
            self.written[tag] = start + offset + count
        width = max(starts) + max(counts) + offset
        if width > self.tokens_allocated:
            self._allocate(self.rows_allocated, width + width // 2)
        return make_feed(slice(first, first + len(tags)), starts, counts, nodes, self.tokens_allocated, self.numbers)

    def join(self, groups: Sequence[Group]) -> Joined:
        """Return the feed of several groups of rows, each cut into runs that lie side by side."""
        self.close_up()
        while True:
            allocated = self.tokens_allocated
            feeds = []
            for tags, counts, nodes in groups:
                for first, last in self.runs(tags):
                    part = nodes.of_rows(first, last) if nodes else None
                    feeds.append(self.place(tags[first:last], counts[first:last], part))
            if self.tokens_allocated == allocated:  # else the first places are outdated
                return Joined(tuple(feeds))

    def realign(self, tags: Sequence[int]) -> None:
        """Do nothing: rows in slots need no common end."""

    def begin(self, tag: int) -> int:
        """The place of a row's first token beyond the committed ones, among all places of the storage."""
        return self.rows[tag] * self.tokens_allocated + self.lengths[tag]

    @torch.inference_mode()
    def _allocate(self, rows: int, tokens: int) -> None:
        """Allocate `rows` of `tokens`, and copy the current rows."""
        if self.pages:
            tokens = whole_pages(tokens)
        if not self.rows:  # the old storage is freed before the allocation
            self.adopt(self._zeros(0, 0))
        storage = self._zeros(rows, tokens)
        if self.rows:
            storage[:, :, : self.rows_allocated, : self.tokens_allocated] = self.storage
        self.adopt(storage)
        self.rows_allocated, self.tokens_allocated = rows, tokens
        self.numbers = torch.arange(rows * tokens, device=self.device)

    def _zeros(self, rows: int, tokens: int) -> torch.Tensor:
        """Return new storage of zeros: masked values must be finite."""
        return torch.zeros(self.dimensions(rows, tokens), dtype=self.dtype, device=self.device)
