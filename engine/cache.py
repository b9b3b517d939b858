"""Slot-addressed key-value storage: every row keeps its own length in place, whatever its neighbours do.

Nothing is ever padded or realigned. Rejected tokens are forgotten by moving a number; the accepted path of a tree is
compacted by one gather over all layers. The storage implements transformers' cache interface (`update`).
"""

from collections.abc import Iterable, Sequence

import msgspec
import torch
from transformers import PretrainedConfig
from transformers.cache_utils import Cache

from engine.feed import Feed, Nodes, chain_mask, ragged, tree_mask
from specfleet.errors import InputError

ROWS, TOKENS = 1, 512  # room at the start, where nobody says how much will be needed


class CacheShape(msgspec.Struct, frozen=True):
    """What one token needs: keys and values of `layers` x `heads` x `size` numbers."""

    layers: int
    heads: int
    size: int

    @property
    def numbers(self) -> int:
        """Numbers a token."""
        return 2 * self.layers * self.heads * self.size


def shape_of(config: PretrainedConfig) -> CacheShape:
    """Read the cache's shape from a model's config; InputError if its state is no plain attention cache."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(config, "kv_lora_rank", None):
        raise InputError(
            f"model type {config.model_type!r}: layers of kind {', '.join(sorted(kinds))}; speculative decoding needs "
            "full attention in all of them, whose cache can be rolled back"
        )
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return CacheShape(config.num_hidden_layers, heads, size)


class SlotCache(Cache):
    """Keys and values of many rows, each named by its tag: (layers, 2, rows, tokens, heads, size).

    Open rows lie side by side from row 0 on, so that a batch of all of them is a view; who leaves is replaced by the
    last one. `lengths` holds committed tokens; what is fed beyond them is speculation until `keep` decides on it.
    Room for `rows` x `tokens` is allocated at once; it grows only when a row opens or gets longer than that, never
    beyond `limit_bytes` (0: no limit).
    """

    def __init__(
        self,
        shape: CacheShape,
        dtype: torch.dtype,
        device: torch.device,
        rows: int = ROWS,
        tokens: int = TOKENS,
        limit_bytes: int = 0,
    ) -> None:
        super().__init__(layers=[])
        self.shape, self.dtype, self.device, self.limit_bytes = shape, dtype, device, limit_bytes
        self.tags: list[int] = []  # by row
        self.rows: dict[int, int] = {}  # by tag
        self.lengths: dict[int, int] = {}  # by tag
        self.feed: Feed | None = None
        self.rows_allocated = self.tokens_allocated = 0
        self._allocate(rows, tokens)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token of one row."""
        return self.shape.numbers * self.dtype.itemsize

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the storage holds."""
        return self.bytes_per_token * self.rows_allocated * self.tokens_allocated

    @property
    def used_bytes(self) -> int:
        """Bytes of committed tokens."""
        return self.bytes_per_token * sum(self.lengths.values())

    def open(self, tag: int, tokens: int = 0) -> None:
        """Begin an empty row that may need `tokens` tokens; InputError if there is no room for it."""
        row = len(self.tags)
        if row == self.rows_allocated or tokens > self.tokens_allocated:
            self._allocate(max(self.rows_allocated, row + 1), max(self.tokens_allocated, tokens))
        self.tags.append(tag)
        self.rows[tag] = row
        self.lengths[tag] = 0

    @torch.inference_mode()
    def close(self, tag: int) -> None:
        """End a row; the last one moves into its place."""
        hole, last = self.rows.pop(tag), self.tags.pop()
        del self.lengths[tag]
        if last != tag:
            length = self.lengths[last]
            self.storage[:, :, hole, :length] = self.storage[:, :, len(self.tags), :length]
            self.tags[hole] = last
            self.rows[last] = hole

    def runs(self, tags: Sequence[int]) -> list[tuple[int, int]]:
        """Cut `tags` into runs [first, last) that lie side by side: each can be fed as one batch."""
        cuts = [i for i in range(1, len(tags)) if self.rows[tags[i]] != self.rows[tags[i - 1]] + 1]
        return list(zip([0, *cuts], [*cuts, len(tags)], strict=True))

    def place(self, tags: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None) -> Feed:
        """Say where `counts` new tokens of each of the rows go, which lie side by side, and what they see.

        `nodes`: they are nodes of a tree; else a chain after the committed tokens.
        """
        first, most = self.rows[tags[0]], max(counts)
        offset = nodes.offset if nodes else 0
        starts = [self.lengths[tag] + offset for tag in tags]
        width = max(starts) + most
        if width > self.tokens_allocated:
            self._allocate(self.rows_allocated, width + width // 2)
        rows = slice(first, first + len(tags))
        if len(tags) == 1:
            begin = first * self.tokens_allocated + starts[0]
            slots = self.numbers[begin : begin + most]
            if nodes is None or nodes.seen is None:
                positions = self.numbers[starts[0] : width]
                return Feed(rows, slots, positions, width, chain_mask(positions[None], self.numbers[:width]))
        begins = torch.tensor(starts, device=self.device)
        places = begins[:, None] + self.numbers[:most]  # (rows, most)
        slots = places + self.tokens_allocated * self.numbers[rows][:, None]
        if nodes is None or nodes.seen is None:
            mask, positions = chain_mask(places, self.numbers[:width]), places
        else:
            lengths = begins - offset
            mask = tree_mask(lengths, nodes.seen, self.numbers[:width])
            positions = lengths[:, None] + nodes.depths
        feed = Feed(rows, slots.flatten(), positions.flatten(), width, mask)
        return feed if min(counts) == most else ragged(feed, counts, most)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values (1, heads, tokens, size) at the current feed's slots; return those of its rows.

        transformers' interface; shapes of the result: (rows, heads, width, size).
        """
        assert self.feed is not None
        keys, values = self.store(key_states[0].transpose(0, 1), value_states[0].transpose(0, 1), layer_idx, self.feed)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def store(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, feed: Feed
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values (N, heads, size); return those of the feed's rows (B, width, heads, size)."""
        both = self.storage[layer]
        flat = both.view(2, -1, *keys.shape[1:])
        flat[0].index_copy_(0, feed.slots, keys)
        flat[1].index_copy_(0, feed.slots, values)
        return both[0, feed.rows, : feed.width], both[1, feed.rows, : feed.width]

    @torch.inference_mode()
    def keep(self, tags: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Commit speculation: of each row the tokens at these offsets beyond its length, in order; forget the rest."""
        sources: list[int] = []
        places: list[int] = []
        for tag, path in zip(tags, paths, strict=True):
            begin = self.rows[tag] * self.tokens_allocated + self.lengths[tag]
            moved = [(begin + offset, begin + place) for place, offset in enumerate(path) if offset != place]
            sources += [source for source, _ in moved]
            places += [place for _, place in moved]
            self.lengths[tag] += len(path)
        if sources:
            flat = self.storage.view(*self.storage.shape[:2], -1, *self.storage.shape[4:])
            flat[:, :, torch.tensor(places, device=self.device)] = flat[:, :, torch.tensor(sources, device=self.device)]

    def roll_back(self, tag: int, length: int) -> None:
        """Forget everything after the first `length` tokens of a row."""
        self.lengths[tag] = min(self.lengths[tag], length)

    def realign(self, tags: Iterable[int]) -> None:
        """Align rows: there is nothing to do, which is the point of slots."""

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002  (transformers' interface)
        """Committed tokens of the longest row; transformers' interface."""
        return max(self.lengths.values(), default=0)

    @torch.inference_mode()
    def _allocate(self, rows: int, tokens: int) -> None:
        """Make room for `rows` of `tokens`, and take over what is there."""
        asked = self.bytes_per_token * rows * tokens
        if 0 < self.limit_bytes < asked:
            raise InputError(
                f"the cache cannot grow to {rows} rows of {tokens} tokens: {asked} bytes, its limit is "
                f"{self.limit_bytes}"
            )
        shape = self.shape
        storage = torch.zeros(
            shape.layers, 2, rows, tokens, shape.heads, shape.size, dtype=self.dtype, device=self.device
        )
        if self.tags:
            storage[:, :, : self.rows_allocated, : self.tokens_allocated] = self.storage
        self.storage = storage
        self.rows_allocated, self.tokens_allocated = rows, tokens
        self.numbers = torch.arange(rows * tokens, device=self.device)
