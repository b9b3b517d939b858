"""The common part of all key-value caches: rows by tag, one for each stream, in a storage over all layers.

Committed tokens stay; later ones are speculation until `keep` decides. Rejected tokens are dropped by a change of the
length; the accepted path of a tree is compacted by one gather over all layers. The kinds of caches differ in the places
of rows: `slots.py`, `aligned.py` and `blocks.py`. They implement transformers' cache interface (`update`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.cache_utils import Cache

from specfleet.engine.decoding.feed import Feed, Joined, Nodes
from specfleet.engine.decoding.placing import placed

WARM_UP = -1  # tag of the row of warm-up steps

Group = tuple[Sequence[int], Sequence[int], Nodes | None]
"""Rows that are fed alike: their tags, the number of new tokens of each, and the nodes of these."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The cache of one token: keys and values of `layers` x `heads` x `size` numbers."""

    layers: int
    heads: int
    size: int

    @property
    def numbers(self) -> int:
        """Numbers of one token."""
        return 2 * self.layers * self.heads * self.size


def shape_of(config: PretrainedConfig) -> CacheShape:
    """Read the cache's shape from the config of a model that the engine runs."""
    shared = 1 if getattr(config, "multi_query", False) else getattr(config, "num_key_value_heads", None)
    heads = shared or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return CacheShape(config.num_hidden_layers, heads, size)


class RowCache(Cache):
    """Keys and values of many rows; `storage` (layers, 2, rows, tokens, heads, size) has the rows of the next pass.

    `lengths`: committed tokens by tag. Subclasses place the rows (`slots.py`, `aligned.py`, `blocks.py`): they
    `place` new tokens, `realign` rows to a common end, and say where the speculated tokens of a row `begin`, which only
    trees ask.
    """

    storage: torch.Tensor
    views: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]
    uniform = False  # whether rows are fed equally many tokens, where they have as many
    joins = False  # whether a pass may feed several groups of rows
    pages = False  # whether attention reads rows in place, see `pages.py`
    shares = False  # whether rows have blocks in common; then a row is fed its own tokens alone
    erases = False  # whether closed rows become zeros: masked values must be finite, and some rows hold others

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        self.shape, self.dtype, self.device = shape, dtype, device
        self.lengths: dict[int, int] = {}
        self.feed: Feed | None = None

    def open(self, tag: int, tokens: int = 0) -> None:
        """Begin an empty row that may need `tokens` tokens; ValueError if it is open."""
        if tag in self.lengths:
            raise ValueError(f"tag {tag} is open already")
        self.lengths[tag] = 0

    def close(self, tag: int) -> None:
        """End a row."""
        del self.lengths[tag]

    def runs(self, tags: Sequence[int]) -> list[tuple[int, int]]:
        """Cut `tags` into runs [first, last) that are fed as one batch: here all."""
        return [(0, len(tags))]

    def in_order(self, tags: Sequence[int]) -> list[int]:
        """Return `tags` in the order in which they are cheapest to feed together."""
        return list(tags)

    def fed(
        self,
        tags: Sequence[int],
        counts: Sequence[int],
        nodes: Nodes | None,
        forward: Callable[[int, int, Any], torch.Tensor],
        joins: bool = False,
    ) -> torch.Tensor:
        """Run `forward` over tokens begin .. end of each run of rows; return the results in order.

        - `joins`: whether `forward` can run all runs in one pass.
        """
        runs = self.runs(tags)
        if len(runs) == 1:
            return forward(0, sum(counts), self.place(tags, counts, nodes))
        if joins and self.joins:
            return forward(0, sum(counts), self.join([(tags, counts, nodes)]))
        pieces = []
        for first, last in runs:
            part = nodes.of_rows(first, last) if nodes else None
            place = self.place(tags[first:last], counts[first:last], part)
            pieces.append(forward(sum(counts[:first]), sum(counts[:last]), place))
        return torch.cat(pieces)

    def join(self, groups: Sequence[Group]) -> Joined:
        """Return the feed of several groups of rows."""
        return Joined(tuple(self.place(*group) for group in groups))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values (1, heads, N, size) at the current feed's slots; return those of its rows.

        transformers' interface; shapes of the result: (B, heads, width, size).
        """
        assert self.feed is not None
        return self.store(key_states[0].transpose(0, 1), value_states[0].transpose(0, 1), layer_idx, self.feed)

    def store(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, feed: Feed
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values (N, heads, size); return those of the feed's rows (B, heads, width, size)."""
        self.write(keys, values, layer, feed.slots)
        return self.read(layer, feed)

    def read(self, layer: int, feed: Feed) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of the feed's rows (B, heads, width, size)."""
        _, _, key_rows, value_rows = self.views[layer]
        rows, width = feed.rows, feed.width
        return key_rows[rows, :, :width], value_rows[rows, :, :width]

    def write(self, keys: torch.Tensor, values: torch.Tensor, layer: int, slots: torch.Tensor) -> None:
        """Store new keys and values (N, heads, size) at their places among all of the storage: `slots` (N,)."""
        key_slots, value_slots, _, _ = self.views[layer]
        key_slots.index_copy_(0, slots, keys)
        value_slots.index_copy_(0, slots, values)

    def adopt(self, storage: torch.Tensor) -> None:
        """Use `storage`. Its views are made once, which saves noticeable time in a step of a small model."""
        self.storage = storage
        slots = storage.flatten(2, 3)  # (layers, 2, places, heads, size)
        rows = storage.transpose(3, 4)  # (layers, 2, rows, heads, tokens, size)
        self.views = [(slots[i, 0], slots[i, 1], rows[i, 0], rows[i, 1]) for i in range(len(storage))]

    def keep(self, tags: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Commit speculation: the tokens of each row at these offsets beyond its length, in order; drop the rest."""
        sources: list[int] = []
        places: list[int] = []
        for tag, path in zip(tags, paths, strict=True):
            moved = [(offset, place) for place, offset in enumerate(path) if offset != place]
            if moved:  # never of a chain
                begin = self.begin(tag)
                sources += [begin + offset for offset, _ in moved]
                places += [begin + place for _, place in moved]
            self.lengths[tag] += len(path)
        if sources:
            self._move_within(sources, places)

    @torch.inference_mode()
    def _move_within(self, sources: Sequence[int], places: Sequence[int]) -> None:
        """Copy tokens between places of the storage; all are read before one is written."""
        flat = self.storage.view(*self.storage.shape[:2], -1, *self.storage.shape[4:])
        origins, goals = placed([sources, places], self.device)
        flat.index_copy_(2, goals, flat.index_select(2, origins))

    def roll_back(self, tag: int, length: int) -> None:
        """Forget everything after the first `length` tokens of a row."""
        self.lengths[tag] = min(self.lengths[tag], length)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Committed tokens of the longest row; transformers' interface."""
        return max(self.lengths.values(), default=0)

    def dimensions(self, rows: int, tokens: int) -> tuple[int, ...]:
        """Dimensions of storage for `rows` of `tokens`."""
        return self.shape.layers, 2, rows, tokens, self.shape.heads, self.shape.size
