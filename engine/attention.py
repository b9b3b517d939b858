"""Attention of new tokens over the rows of a slot-addressed cache, also as an attention function of transformers."""

import torch
from torch.nn import functional
from transformers import AttentionInterface

from engine.feed import Feed

NAME = "slot-addressed"  # of the attention implementation, as transformers knows it


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, feed: Feed, scale: float | None = None
) -> torch.Tensor:
    """Attend with N queries (N, heads, size) over keys and values (B, W, kv heads, size); return (N, heads, size).

    Query heads that share a key-value head count as further queries, so keys are never repeated.
    """
    heads, size = query.shape[1:]
    kv_heads = keys.shape[2]
    if feed.gather is not None:
        query = query[feed.gather]  # (B * T, heads, size)
    B, T, group = feed.batch, len(query) // feed.batch, heads // kv_heads
    queries = query.view(B, T, kv_heads, group, size).transpose(1, 2).reshape(B, kv_heads, T * group, size)
    mask = feed.mask
    if mask is not None:
        mask = mask[:, None] if T == 1 or group == 1 else mask.repeat_interleave(group, dim=1)[:, None]
    output = functional.scaled_dot_product_attention(
        queries, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask, scale=scale
    )
    output = output.view(B, kv_heads, T, group, size).transpose(1, 2).reshape(B * T, heads, size)
    return output if feed.scatter is None else output[feed.scatter]


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001  (the feed holds it)
    feed: Feed | None = None,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attend as transformers asks for it: query (1, heads, N, size), key and value (B, kv heads, W, size)."""
    if feed is None:
        raise TypeError(f"{type(module).__name__} does not hand its keyword arguments on to attention")
    output = attend(query[0].transpose(0, 1), key.transpose(1, 2), value.transpose(1, 2), feed, scaling)
    return output[None], None


def use_slots(model: torch.nn.Module) -> None:
    """Let a transformers model attend over slot-addressed rows from now on."""
    AttentionInterface.register(NAME, attention_function)
    model.config._attn_implementation = NAME
