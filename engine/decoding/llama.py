"""A lean forward pass of LLaMA-type models and Qwen3: a transformers model's weights, not its modules.

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

from specfleet.engine.decoding.admitted import STATIC_ROPE
from specfleet.engine.decoding.attention import attend, grouped
from specfleet.engine.decoding.cache import RowCache
from specfleet.engine.decoding.feed import Feed, Joined
from specfleet.engine.decoding.pages import attend_pages, pack_rows

MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen3"}
POSITIONS = 4096  # of the first rotary table; a longer one is made when it is needed
Attention = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From a layer's number, queries, keys and values (N, heads, size) to what its queries attend to (N, heads, size)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer.

    - `first_norm`: missing in EAGLE's heads.
    - `query_norm`, `key_norm`: of each head, in Qwen3.
    - `window`: how many of the last tokens a token sees; None for all.
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
    window: int | None = None


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
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
    )


def fuse_layer(module: torch.nn.Module) -> Layer:
    """Fuse a decoder layer's projections; the module's own weights become views of the fused ones."""
    attention, mlp, config = module.self_attn, module.mlp, module.self_attn.config
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    biased = attention.q_proj.bias is not None

    def factors(name: str) -> torch.Tensor | None:
        weight = getattr(getattr(attention, name, None), "weight", None)
        return None if weight is None else weight.data

    first_norm = getattr(module.input_layernorm, "weight", None)
    return Layer(
        first_norm=None if first_norm is None else first_norm.data,
        qkv=_fused([projection.weight for projection in projections]),
        qkv_bias=torch.cat([projection.bias.data for projection in projections]) if biased else None,
        output=attention.o_proj.weight.data,
        output_bias=None if attention.o_proj.bias is None else attention.o_proj.bias.data,
        second_norm=module.post_attention_layernorm.weight.data,
        gate_up=_fused([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight.data,
        query_norm=factors("q_norm"),
        key_norm=factors("k_norm"),
        window=getattr(config if config.model_type == "mistral" else attention, "sliding_window", None),
    )


def _fused(weights: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    fused = torch.cat([weight.data for weight in weights])
    for weight, part in zip(weights, fused.split([len(weight) for weight in weights]), strict=True):
        weight.data = part
    return fused


def rotary_table(embedding: torch.nn.Module, width: int, like: torch.Tensor) -> Rotary:
    """Tabulate a model's rotary embedding for twice `width` positions or more, with `like`'s dtype and device."""
    ids = torch.arange(max(2 * width, POSITIONS), device=like.device)[None]
    cosines, sines = (part[0, :, None, : part.shape[-1] // 2] for part in embedding(like, position_ids=ids))
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
    size, epsilon = cache.shape.size, config.rms_norm_eps
    cosines, sines = rotary.cosines[feed.positions], rotary.sines[feed.positions]
    attend_all = make_attention(feed, cache, layers, heads // kv_heads, x.dtype)
    for number, layer in enumerate(layers):
        if tapped is not None and number in tapped:
            tapped[number] = x
        normed = x if read is None else read
        if layer.first_norm is not None:
            normed = norm(x, layer.first_norm, epsilon)
        qkv = functional.linear(normed, layer.qkv, layer.qkv_bias).view(-1, heads + 2 * kv_heads, size)
        rotated = rotate(_queries_and_keys(qkv, layer, heads, kv_heads, epsilon), cosines, sines)
        attended = attend_all(number, rotated[:, :heads], rotated[:, heads:], qkv[:, heads + kv_heads :])
        x = x + functional.linear(attended.reshape(-1, heads * size), layer.output, layer.output_bias)
        gate, up = functional.linear(norm(x, layer.second_norm, epsilon), layer.gate_up).chunk(2, -1)
        x = x + functional.linear(functional.silu(gate) * up, layer.down)
    return x


def norm(values: torch.Tensor, factors: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Norm values (..., n) by their root mean square, with factors (n,)."""
    return torch.rms_norm(values, factors.shape, factors, epsilon)


def make_attention(
    feed: Feed | Joined, cache: RowCache, layers: Sequence[Layer], group: int, dtype: torch.dtype
) -> Attention:
    """Return the function that stores the keys and values of a layer's N tokens, and attends with their queries.

    - `group`: query heads of a key-value head.
    """
    packed = pack_rows(feed.feeds) if cache.pages else None
    if packed is not None:
        slots = torch.cat([part.slots for part in feed.feeds]) if len(feed.feeds) > 1 else feed.feeds[0].slots

        def of_pages(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            cache.write(keys, values, layer, slots)
            return attend_pages(queries, cache.storage[layer, 0], cache.storage[layer, 1], packed)

        return of_pages
    masks = {
        window: [grouped(part.visible if window is None else part.within(window), group, dtype) for part in feed.feeds]
        for window in {layer.window for layer in layers}
    }
    ends = list(accumulate(len(part.slots) for part in feed.feeds))
    spans = list(zip([0, *ends], ends, feed.feeds, strict=False))

    def of_masks(number: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        parts = []
        for (begin, end, part), mask in zip(spans, masks[layers[number].window], strict=True):
            rows = cache.store(keys[begin:end], values[begin:end], number, part)
            parts.append(attend(queries[begin:end], *rows, part, mask))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return of_masks


def _queries_and_keys(qkv: torch.Tensor, layer: Layer, heads: int, kv_heads: int, epsilon: float) -> torch.Tensor:
    """Return what is rotated, queries and keys (N, heads + kv heads, size)."""
    if layer.query_norm is None:
        return qkv[:, : heads + kv_heads]
    parts = (qkv[:, :heads], layer.query_norm), (qkv[:, heads : heads + kv_heads], layer.key_norm)
    return torch.cat([part if factors is None else norm(part, factors, epsilon) for part, factors in parts], 1)
