"""Key-value caches that can be rolled back: rejected tokens are forgotten, the prefix is never computed again."""

import torch
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import Cache, DynamicLayer

from specfleet.errors import InputError

GROWTH = 256  # tokens


class PreallocatedLayer(DynamicLayer):
    """A layer that writes into a buffer in place; `keys` and `values` are views of what is filled.

    A plain dynamic layer copies the whole cache for every token. Shapes: (batch, heads, tokens, head size).
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values; return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.buffers = [key_states[:, :, :0], value_states[:, :, :0]]
            self.keys, self.values = self.buffers
        start = self.keys.shape[-2]
        end = start + key_states.shape[-2]
        if end > self.buffers[0].shape[-2]:
            self.buffers = [_grown(filled, end + GROWTH) for filled in (self.keys, self.values)]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values


def _grown(filled: torch.Tensor, capacity: int) -> torch.Tensor:
    batch, heads, tokens, size = filled.shape
    buffer = filled.new_empty(batch, heads, capacity, size)
    buffer[:, :, :tokens] = filled
    return buffer


def new_cache(config: PretrainedConfig) -> Cache:
    """Return an empty cache for one decoding stream; InputError if the model's state cannot be rolled back."""
    cache = DynamicCache(config=config)
    cache.layers = [PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    for layer in cache.layers:
        if not getattr(layer, "is_croppable", False):
            raise InputError(
                f"model type {config.model_type!r}: its {type(layer).__name__} cannot be rolled back; "
                "speculative decoding needs attention caches"
            )
        if hasattr(layer, "activate_past_recording"):
            layer.activate_past_recording()
    return cache


def roll_back(cache: Cache, length: int) -> None:
    """Forget everything after the first `length` tokens."""
    surplus = cache.get_seq_length() - length
    if surplus > 0:
        cache.crop(-surplus)
