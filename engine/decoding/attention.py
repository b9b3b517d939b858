"""Attention of new tokens over the rows of a slot-addressed cache, also as an attention function of transformers."""

from contextvars import ContextVar

import torch
from torch.nn import functional
from transformers import AttentionInterface

from specfleet.engine.decoding.feed import Feed
from specfleet.fleet.errors import InputError

NAME = "slot-addressed"  # of the attention implementation, as transformers knows it
FEED: ContextVar[Feed] = ContextVar("feed")  # of the running pass: some models do not pass keyword arguments on
HARMLESS = {
    "dropout", "is_causal", "position_ids", "layer_idx", "use_cache", "output_attentions", "output_hidden_states",
}  # fmt: skip
"""Keyword arguments of models' attention beside those of `attention_function`: the feed already implies them."""
ALIGNED = 16  # numbers; rows of an additive mask start at multiples of it, for wide loads of the kernels


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    feed: Feed,
    mask: torch.Tensor | None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with N queries (N, heads, size) over keys and values (B, kv heads, W, size); return (N, heads, size).

    Query heads that share a key-value head count as further queries, so keys are never repeated.

    - `mask`: the feed's, as `grouped` returns it.
    - `softcap`, `sinks` (heads,): see `attend_by_scores`.
    """
    heads, size = query.shape[1:]
    kv_heads = keys.shape[1]
    if feed.gather is not None:
        query = query[feed.gather]  # (B * T, heads, size)
    B, group = feed.batch, heads // kv_heads
    T = len(query) // B
    queries = query.view(B, T, kv_heads, group, size).transpose(1, 2).reshape(B, kv_heads, T * group, size)
    if softcap is None and sinks is None:
        output = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
    else:
        if sinks is not None:
            sinks = sinks.view(kv_heads, 1, group).expand(-1, T, -1).reshape(kv_heads, T * group, 1)
        output = attend_by_scores(queries, keys, values, mask, size**-0.5 if scale is None else scale, softcap, sinks)
    output = output.view(B, kv_heads, T, group, size).transpose(1, 2).reshape(B * T, heads, size)
    return output if feed.scatter is None else output[feed.scatter]


def attend_by_scores(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attend with queries (B, kv heads, Q, size), with changes of scores that torch's kernels do not support.

    - `softcap`: scores are bent to lie within plus and minus this.
    - `sinks` (kv heads, Q, 1): the score of an empty place, which takes its share of the weight.
    """
    scores = queries @ keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores).expand(len(scores), -1, -1, -1)], -1)
    weights = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(values.dtype)
    return weights[..., : keys.shape[2]] @ values


def grouped(mask: torch.Tensor | None, group: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Return the additive mask of scores for a feed's mask (B, T, W), in the precision of queries.

    For `group` query heads a key-value head: (B, 1, T x group, W); T = 1 stays 1.
    """
    if mask is None:
        return None
    if group > 1 and mask.shape[1] > 1:
        mask = mask.repeat_interleave(group, dim=1)
    return additive(mask, dtype)[:, None]


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 where a mask (..., W) is true and minus infinity elsewhere, the same shape.

    Attention would compute and align it again in every layer.
    """
    width = mask.shape[-1]
    aligned = mask.new_zeros(*mask.shape[:-1], -(-width // ALIGNED) * ALIGNED, dtype=dtype)
    return aligned[..., :width].masked_fill_(~mask, -torch.inf)


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001  (transformers' signature; the feed has the mask)
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **more: object,
) -> tuple[torch.Tensor, None]:
    """Attention for transformers: query (1, heads, N, size), key and value (B, kv heads, W, size).

    InputError if a model passes an argument that is not supported here.
    """
    for name, value_of_it in more.items():
        if name not in HARMLESS and value_of_it is not None:
            raise InputError(f"{type(module).__name__} attends with {name}, which the engine does not support")
    feed = FEED.get()
    visible = feed.mask if sliding_window is None else feed.within(sliding_window)
    mask = grouped(visible, query.shape[1] // key.shape[1], query.dtype)
    output = attend(query[0].transpose(0, 1), key, value, feed, mask, scaling, softcap, s_aux)
    return output[None], None


def use_slots(model: torch.nn.Module) -> None:
    """Let a transformers model attend over slot-addressed rows."""
    AttentionInterface.register(NAME, attention_function)
    model.config._attn_implementation = NAME
