"""Rows over the blocks of a prefix cache: rows with equal beginnings have the same blocks.

The target's station decides which blocks a row has (`fleet/policies/blocks.py`), in both worlds; here their numbers are
places. Memory is the pool's, allocated at once, and never grows. A drafter on the target's device has the same blocks,
with keys and values of its own, as vLLM's drafters do.

No block is ever copied on write. Only full blocks are found, and a row goes on behind what it found: at the beginning
of a block of its own. So a shared block is written once, before it is read. It may be read in the step that writes it:
executors take the parts of a step in the order of the tokens before them, of which rows that find have more.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from specfleet.engine.decoding.cache import WARM_UP, CacheShape, RowCache
from specfleet.engine.decoding.feed import Feed, Nodes, make_feed
from specfleet.engine.decoding.placing import placed
from specfleet.fleet.policies.blocks import CachedBlocks


class BlockCache(RowCache):
    """Rows in the blocks that `pool` gives them, which keep what they hold.

    Block 0 belongs to no row: shorter rows are filled up with it. A pass gathers the keys and values of its rows. No
    attention reads these blocks in place: torch's takes pages of 256 places, and vLLM's blocks have 16.
    """

    joins = shares = True

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device, pool: CachedBlocks) -> None:
        super().__init__(shape, dtype, device)
        self.pool = pool
        dimensions = self.dimensions(pool.limit + 1, pool.block_size)
        self.adopt(torch.zeros(dimensions, dtype=dtype, device=device))  # masked values must be finite
        self.blocks = [(keys.flatten(1), values.flatten(1)) for keys, values in self.storage]

    def place(self, tags: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None) -> Feed:
        """Return the feed of `counts` new tokens of each of the rows, which are chains.

        ValueError for tokens beyond the blocks of a row.
        """
        size, offset = self.pool.block_size, nodes.offset if nodes else 0
        starts = [self.lengths[tag] for tag in tags]
        blocks = -(-(max(starts) + offset + max(counts)) // size)
        table = []
        for tag, start, count in zip(tags, starts, counts, strict=True):
            of_row = self.pool.texts[tag].blocks if tag != WARM_UP else ()
            if tag != WARM_UP and len(of_row) * size < start + offset + count:
                raise ValueError(f"tag {tag}: {start + offset + count} tokens in {len(of_row)} blocks of {size}")
            table.append([*of_row[:blocks], *[0] * (blocks - len(of_row))])
        numbers = torch.arange(len(tags) * blocks * size, device=self.device)
        of_rows = placed(table, self.device).flatten()
        feed = make_feed(slice(0, len(tags)), starts, counts, nodes, blocks * size, numbers)
        return replace(feed, slots=of_rows[feed.slots // size] * size + feed.slots % size, blocks=of_rows)

    def read(self, layer: int, feed: Feed) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of the feed's rows (B, heads, width, size)."""
        rows = feed.batch, -1, self.shape.heads, self.shape.size
        keys, values = (of_layer.index_select(0, feed.blocks).view(rows) for of_layer in self.blocks[layer])
        return keys[:, : feed.width].transpose(1, 2), values[:, : feed.width].transpose(1, 2)
