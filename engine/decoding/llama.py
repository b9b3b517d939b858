"""A lean forward pass of LLaMA-type models, Qwen3 and GLM-4: the weights of a transformers model without its modules.

transformers spends half of a small model's step on module calls, argument checks and projections one by one. Here a
layer is one function over a flat batch of tokens, with fused projections. Results are the same numbers; other model
types run through transformers itself (see `models.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch.nn import functional
from transformers import PretrainedConfig

from engine.decoding.admitted import STATIC_ROPE, slides
from engine.decoding.attention import attend, grouped
from engine.decoding.cache import RowCache
from engine.decoding.feed import Feed, Joined
from engine.decoding.pages import attend_pages, packed_of

MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen3", "glm4"}
IN_PAIRS = {"glm4"}  # types that rotate neighbours of a head, and not its halves


Attention = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From a layer's number, queries, keys and values (N, heads, size) to what its queries attend to (N, heads, size)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer.

    - `first_norm`: missing in EAGLE's heads.
    - `query_norm`, `key_norm`: of each head, in Qwen3.
    - `attended_norm`, `fed_norm`: of what attention and the network add, in GLM-4.
    """

    first_norm: torch.Tensor | None
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    second_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None
    attended_norm: torch.Tensor | None = None
    fed_norm: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines, and sines with a negated first half, by position: (positions, 1, head size)."""

    cosines: torch.Tensor
    sines: torch.Tensor


def is_lean(config: PretrainedConfig) -> bool:
    """Whether the lean forward pass computes the same as the model's own."""
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return (
        config.model_type in MODEL_TYPES
        and rope in STATIC_ROPE
        and getattr(config, "hidden_act", "silu") == "silu"
        and not getattr(config, "mlp_bias", False)
        and not slides(config)
    )


def layer_of(module: torch.nn.Module) -> Layer:
    """Fuse a decoder layer's projections; the module's own weights become views of the fused ones.

    Where heads are rotated in pairs, their numbers change places first, so that the module itself is of no more use.
    """
    attention, mlp = module.self_attn, module.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    if attention.config.model_type in IN_PAIRS:
        share = attention.config.rope_parameters.get("partial_rotary_factor", 1.0)
        for projection in projections[:2]:
            _rearrange(projection, attention.head_dim, int(share * attention.head_dim))
    biased = attention.q_proj.bias is not None
    return Layer(
        _weight(module, "input_layernorm"),
        _fused([projection.weight for projection in projections]),
        torch.cat([projection.bias.data for projection in projections]) if biased else None,
        attention.o_proj.weight.data,
        None if attention.o_proj.bias is None else attention.o_proj.bias.data,
        module.post_attention_layernorm.weight.data,
        _fused([mlp.gate_proj.weight, mlp.up_proj.weight]) if hasattr(mlp, "up_proj") else mlp.gate_up_proj.weight.data,
        mlp.down_proj.weight.data,
        _weight(attention, "q_norm"),
        _weight(attention, "k_norm"),
        _weight(module, "post_self_attn_layernorm"),
        _weight(module, "post_mlp_layernorm"),
    )


def _weight(module: torch.nn.Module, norm: str) -> torch.Tensor | None:
    weight = getattr(getattr(module, norm, None), "weight", None)
    return None if weight is None else weight.data


def _rearrange(projection: torch.nn.Module, size: int, rotated: int) -> None:
    """Move the rotated pairs of each head's numbers to equal places of its halves; the others fill both.

    Products of queries and keys stay the same, since both change alike.
    """
    pairs, others = torch.arange(rotated).view(-1, 2), torch.arange(rotated, size).view(2, -1)
    order = torch.cat([pairs[:, 0], others[0], pairs[:, 1], others[1]]).to(projection.weight.device)
    for values in (projection.weight, projection.bias):
        if values is not None:
            values.data = values.data.unflatten(0, (-1, size))[:, order].flatten(0, 1)


def _fused(weights: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    fused = torch.cat([weight.data for weight in weights])
    for weight, part in zip(weights, fused.split([len(weight) for weight in weights]), strict=True):
        weight.data = part
    return fused


def rotary_table(embedding: torch.nn.Module, positions: int, like: torch.Tensor, size: int) -> Rotary:
    """Tabulate a model's rotary embedding for positions 0 .. `positions` - 1, with `like`'s dtype and device.

    - `size`: numbers of a head; those that are not rotated have a cosine of 1.
    """
    ids = torch.arange(positions, device=like.device)[None]
    cosines, sines = (part[0, :, None, : part.shape[-1] // 2] for part in embedding(like, position_ids=ids))
    still = size // 2 - cosines.shape[-1]
    cosines, sines = functional.pad(cosines, (0, still), value=1.0), functional.pad(sines, (0, still))
    return Rotary(torch.cat([cosines, cosines], -1), torch.cat([-sines, sines], -1))


def rotate(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotate queries or keys (N, heads, size) by the tables of their positions (N, 1, size)."""
    half = heads.shape[-1] // 2
    return heads * cosines + heads.roll(half, -1) * sines


def run_layers(
    layers: Sequence[Layer],
    x: torch.Tensor,
    feed: Feed | Joined,
    cache: RowCache,
    rotary: Rotary,
    config: PretrainedConfig,
    read: torch.Tensor | None = None,
    tapped: dict[int, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Run N tokens x (N, hidden) through decoder layers; store their keys and values; return (N, hidden).

    - `read`: what attention reads in layers without a first norm; None for x itself.
    - `tapped`: receives the inputs of the layers that are its keys.
    """
    heads, kv_heads = config.num_attention_heads, cache.shape.heads
    size, epsilon, hidden = cache.shape.size, config.rms_norm_eps, x.shape[-1:]
    cosines, sines = rotary.cosines[feed.positions], rotary.sines[feed.positions]
    attend_all = attention_of(feed, cache, heads // kv_heads, x.dtype)
    for number, layer in enumerate(layers):
        if tapped is not None and number in tapped:
            tapped[number] = x
        if layer.first_norm is None:
            normed = x if read is None else read
        else:
            normed = functional.rms_norm(x, hidden, layer.first_norm, epsilon)
        qkv = functional.linear(normed, layer.qkv, layer.qkv_bias).view(-1, heads + 2 * kv_heads, size)
        rotated = rotate(_queries_and_keys(qkv, layer, heads, kv_heads, epsilon), cosines, sines)
        attended = attend_all(number, rotated[:, :heads], rotated[:, heads:], qkv[:, heads + kv_heads :])
        added = functional.linear(attended.reshape(-1, heads * size), layer.output, layer.output_bias)
        x = x + (
            added if layer.attended_norm is None else functional.rms_norm(added, hidden, layer.attended_norm, epsilon)
        )
        normed = functional.rms_norm(x, hidden, layer.second_norm, epsilon)
        gate, up = functional.linear(normed, layer.gate_up).chunk(2, -1)
        added = functional.linear(functional.silu(gate) * up, layer.down)
        x = x + _normed(added, layer.fed_norm, epsilon)
    return x


def attention_of(feed: Feed | Joined, cache: RowCache, group: int, dtype: torch.dtype) -> Attention:
    """Return the function that stores the keys and values of a layer's N tokens, and attends with their queries.

    - `group`: query heads of a key-value head.
    """
    packed = packed_of(feed.feeds) if cache.pages else None
    if packed is not None:
        slots = torch.cat([each.slots for each in feed.feeds]) if len(feed.feeds) > 1 else feed.feeds[0].slots

        def of_pages(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            cache.write(keys, values, layer, slots)
            return attend_pages(queries, cache.storage[layer, 0], cache.storage[layer, 1], packed)

        return of_pages
    masks = [grouped(each.visible, group, dtype) for each in feed.feeds]
    ends = list(accumulate(len(each.slots) for each in feed.feeds))
    spans = list(zip([0, *ends], ends, feed.feeds, masks, strict=False))

    def of_masks(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        parts = [
            attend(queries[begin:end], *cache.store(keys[begin:end], values[begin:end], layer, each), each, mask)
            for begin, end, each, mask in spans
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return of_masks


def _queries_and_keys(qkv: torch.Tensor, layer: Layer, heads: int, kv_heads: int, epsilon: float) -> torch.Tensor:
    """Return what is rotated, queries and keys (N, heads + kv heads, size)."""
    if layer.query_norm is None:
        return qkv[:, : heads + kv_heads]
    parts = ((qkv[:, :heads], layer.query_norm), (qkv[:, heads : heads + kv_heads], layer.key_norm))
    return torch.cat([_normed(part, norm, epsilon) for part, norm in parts], 1)


def _normed(values: torch.Tensor, norm: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    return values if norm is None else functional.rms_norm(values, values.shape[-1:], norm, epsilon)
