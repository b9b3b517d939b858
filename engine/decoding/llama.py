"""A lean forward pass of LLaMA-type models, Qwen3, GLM-4 and Gemma 2: a transformers model's weights, not its modules.

transformers spends half of a small model's step on module calls, argument checks and projections one by one. Here a
layer is one function over a flat batch of tokens, with fused projections. Results are the same numbers; other model
types run through transformers itself (see `models.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch.nn import functional
from transformers import PretrainedConfig

from specfleet.engine.decoding.admitted import STATIC_ROPE
from specfleet.engine.decoding.attention import attend, grouped
from specfleet.engine.decoding.cache import RowCache
from specfleet.engine.decoding.feed import Feed, Joined
from specfleet.engine.decoding.pages import attend_pages, pack_rows

MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen3", "glm4", "gemma2"}
IN_PAIRS = {"glm4"}  # types that rotate neighbours of a head, and not its halves
SCALED = {"gemma2"}  # types that scale embeddings, cap logits, and norm by 1 + weight
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu, "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
}  # fmt: skip

NORMS = ("post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
"""Norms of a layer before its network, after attention and after the network."""
SANDWICHED = ("pre_feedforward_layernorm", "post_attention_layernorm", "post_feedforward_layernorm")
"""The same norms in Gemma 2."""
Attention = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From a layer's number, queries, keys and values (N, heads, size) to what its queries attend to (N, heads, size)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer, and the constants of its attention.

    - `first_norm`: missing in EAGLE's heads.
    - `scale`: of products of queries and keys.
    - `query_norm`, `key_norm`: of each head, in Qwen3.
    - `attended_norm`, `fed_norm`: of what attention and the network add, in GLM-4 and Gemma 2.
    - `window`: how many of the last tokens a token sees; None for all.
    - `softcap`: scores are bent to lie within plus and minus this.
    """

    first_norm: torch.Tensor | None
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    second_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    activation: Callable[[torch.Tensor], torch.Tensor]
    scale: float
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None
    attended_norm: torch.Tensor | None = None
    fed_norm: torch.Tensor | None = None
    window: int | None = None
    softcap: float | None = None


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
        and _activation(config) in ACTIVATIONS
        and not getattr(config, "mlp_bias", False)
    )


def _activation(config: PretrainedConfig) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def fuse_layer(module: torch.nn.Module) -> Layer:
    """Fuse a decoder layer's projections; the module's own weights become views of the fused ones.

    Where heads are rotated in pairs, their numbers change places first, so that the module itself is of no more use.
    """
    attention, mlp, config = module.self_attn, module.mlp, module.self_attn.config
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    if config.model_type in IN_PAIRS:
        share = config.rope_parameters.get("partial_rotary_factor", 1.0)
        for projection in projections[:2]:
            _rearrange(projection, attention.head_dim, int(share * attention.head_dim))
    biased = attention.q_proj.bias is not None
    named = SANDWICHED if hasattr(module, SANDWICHED[0]) else NORMS

    def factors(name: str, owner: torch.nn.Module = module) -> torch.Tensor | None:
        norm = getattr(owner, name, None)
        return None if getattr(norm, "weight", None) is None else read_factors(norm, config)

    before_network, after_attention, after_network = (factors(name) for name in named)
    assert before_network is not None
    split = hasattr(mlp, "up_proj")
    gate_up = _fused([mlp.gate_proj.weight, mlp.up_proj.weight]) if split else mlp.gate_up_proj.weight.data
    return Layer(
        first_norm=factors("input_layernorm"),
        qkv=_fused([projection.weight for projection in projections]),
        qkv_bias=torch.cat([projection.bias.data for projection in projections]) if biased else None,
        output=attention.o_proj.weight.data,
        output_bias=None if attention.o_proj.bias is None else attention.o_proj.bias.data,
        second_norm=before_network,
        gate_up=gate_up,
        down=mlp.down_proj.weight.data,
        activation=ACTIVATIONS[_activation(config)],
        scale=attention.scaling,
        query_norm=factors("q_norm", attention),
        key_norm=factors("k_norm", attention),
        attended_norm=after_attention,
        fed_norm=after_network,
        window=getattr(config if config.model_type == "mistral" else attention, "sliding_window", None),
        softcap=getattr(attention, "attn_logit_softcapping", None),
    )


def read_factors(module: torch.nn.Module, config: PretrainedConfig) -> torch.Tensor:
    """Return the factors (n,) of a norm.

    Where they are 1 + weight, they are in single precision: 1 + weight has fewer digits than the weight.
    """
    weight = module.weight.data
    if config.model_type not in SCALED:
        return weight
    return 1 + weight.to(torch.promote_types(weight.dtype, torch.float32))


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
        added = functional.linear(attended.reshape(-1, heads * size), layer.output, layer.output_bias)
        x = x + (added if layer.attended_norm is None else norm(added, layer.attended_norm, epsilon))
        gate, up = functional.linear(norm(x, layer.second_norm, epsilon), layer.gate_up).chunk(2, -1)
        added = functional.linear(layer.activation(gate) * up, layer.down)
        x = x + (added if layer.fed_norm is None else norm(added, layer.fed_norm, epsilon))
    return x


def norm(values: torch.Tensor, factors: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Norm values (..., n) by their root mean square, in the precision of the factors (n,)."""
    if values.dtype is factors.dtype:
        return torch.rms_norm(values, factors.shape, factors, epsilon)
    return torch.rms_norm(values.to(factors.dtype), factors.shape, factors, epsilon).to(values.dtype)


def attends_plainly(layer: Layer, size: int) -> bool:
    """Whether attention has no window, no cap and the usual scale for heads of that size, as attention over pages."""
    return layer.window is None and layer.softcap is None and layer.scale == size**-0.5


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
        layer = layers[number]
        parts = []
        for (begin, end, part), mask in zip(spans, masks[layer.window], strict=True):
            rows = cache.store(keys[begin:end], values[begin:end], number, part)
            parts.append(attend(queries[begin:end], *rows, part, mask, layer.scale, layer.softcap))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return of_masks


def _queries_and_keys(qkv: torch.Tensor, layer: Layer, heads: int, kv_heads: int, epsilon: float) -> torch.Tensor:
    """Return what is rotated, queries and keys (N, heads + kv heads, size)."""
    if layer.query_norm is None:
        return qkv[:, : heads + kv_heads]
    parts = (qkv[:, :heads], layer.query_norm), (qkv[:, heads : heads + kv_heads], layer.key_norm)
    return torch.cat([part if factors is None else norm(part, factors, epsilon) for part, factors in parts], 1)
