"""From a config.json of transformers to a shape. Unknown model types are refused in one line."""

from collections.abc import Mapping
from typing import Any

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.shape import ModelShape

NESTED = dict.fromkeys(("gemma3", "kimi_k25", "qwen3_5_moe"), "text_config")  # text part of a multimodal model
MODEL_TYPES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gemma3_text", "glm4", "glm4_moe",
    "deepseek_v3", "kimi_k2", "kimi_k25", "gpt_oss", "minimax_m2", "qwen3_5_moe", "qwen3_5_moe_text",
    "eagle", "eagle3", "deepseek_mtp",
)  # fmt: skip
ALIKE = dict.fromkeys(("deepseek_mtp", "kimi_k2", "kimi_k25"), "deepseek_v3")  # types of the same form
HEADS = {"eagle": ("eagle", 1), "eagle3": ("eagle3", 3), "deepseek_mtp": ("mtp", 5)}
"""What only drafts: our name, and the norms of its layer, as in published heads."""
GEMMA_DEFAULTS = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
    "tie_word_embeddings": True, "sliding_window": 4096,
}  # fmt: skip
ROUTED = {
    "experts": "n_routed_experts", "experts_used": "num_experts_per_tok", "intermediate": "moe_intermediate_size",
    "dense_layers": "first_k_dense_replace", "dense_intermediate": "intermediate_size",
}  # fmt: skip
# Types with norms of each head, without a key that says so.
NORMED = ("qwen3", "qwen3_moe", "qwen3_5_moe_text", "gemma3", "gemma3_text")
LOCAL = {"experts": "num_local_experts", "experts_used": "num_experts_per_tok"}
QWEN = {"experts": "num_experts", "experts_used": "num_experts_per_tok", "intermediate": "moe_intermediate_size"}
EXPERTS = {  # keys of a mixture of experts, by ours
    "mixtral": LOCAL, "gpt_oss": LOCAL, "minimax_m2": LOCAL, "glm4_moe": ROUTED, "deepseek_v3": ROUTED,
    "qwen3_moe": QWEN, "qwen3_5_moe_text": QWEN | {"shared_intermediate": "shared_expert_intermediate_size"},
}  # fmt: skip
LATENT = {"latent": "kv_lora_rank", "rotary": "qk_rope_head_dim", "query_latent": "q_lora_rank",
          "value_dim": "v_head_dim"}  # fmt: skip


def shape_of_config(name: str, content: Any, origin: str) -> ModelShape:
    """Return the shape of a config.json; `origin` begins the line of an InputError.

    Raises InputError for an unknown model type and for a missing or invalid size.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{origin}: needs the table of a config.json; holds {type(content).__name__}")
    kind = str(content.get("model_type"))
    if kind not in MODEL_TYPES:
        raise InputError(f"{origin}: model_type = {kind!r} is not known; allowed: {', '.join(MODEL_TYPES)}")
    if kind in NESTED:
        content = content.get(NESTED[kind], content)
        if not isinstance(content, Mapping):
            raise InputError(f"{origin}: {NESTED[kind]} needs a table")
        kind = str(content.get("model_type", kind))
    head, norms = HEADS.get(kind, ("", 2))
    kind = ALIKE.get(kind, kind)
    renamed = {"num_experts": content.get("num_local_experts")}  # by transformers 5
    config = _Config(renamed | (GEMMA_DEFAULTS if kind.startswith("gemma3") else {}) | dict(content), origin)
    heads = config.size("num_attention_heads")
    hidden = config.size("hidden_size")
    layers = config.size("num_hidden_layers")
    window, windowed = _windows(kind, config, layers)
    sizes: dict[str, Any] = {
        "name": name,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.size("num_key_value_heads", heads),
        "head_dim": config.size("head_dim", max(hidden // heads, 1)),
        "intermediate": config.size("intermediate_size", config.size("moe_intermediate_size", 0) or None),
        "vocabulary": config.size("vocab_size"),
        "tied": config.flag("tie_word_embeddings"),
        "query_bias": kind == "qwen2" or config.flag("attention_bias"),
        "output_bias": config.flag("attention_bias") and not kind.startswith("glm4"),
        "head_norms": kind in NORMED or (config.flag("use_qk_norm") and kind != "minimax_m2"),
        "norms": 4 if kind.startswith("gemma") or kind == "glm4" else norms,
        "window": window,
        "windowed_layers": windowed,
        "head": head,
        "draft_vocabulary": config.size("draft_vocab_size", 0) if head else 0,
        "gated": config.flag("attn_output_gate"),
    }
    made = msgspec.convert(sizes | _experts(kind, config) | _attention(kind, config), ModelShape)
    made = msgspec.structs.replace(made, small=_small(kind, made))
    if made.heads % made.kv_heads:
        raise InputError(f"{origin}: num_attention_heads = {heads} is no multiple of {made.kv_heads} key-value heads")
    return made


def _experts(kind: str, config: "_Config") -> dict[str, Any]:
    """Return the sizes of a mixture of experts; nothing for dense models."""
    dense = ("dense_layers",)  # may be 0
    sizes: dict[str, Any] = {
        ours: config.size(theirs, 0 if ours in dense else None) for ours, theirs in EXPERTS.get(kind, {}).items()
    }
    if EXPERTS.get(kind) is ROUTED:
        sizes["shared_intermediate"] = sizes["intermediate"] * config.size("n_shared_experts")
    quantised = config.content.get("quantization_config")
    if isinstance(quantised, Mapping) and quantised.get("quant_method") == "mxfp4":
        sizes["experts_in"] = "mxfp4"
    return sizes


def _attention(kind: str, config: "_Config") -> dict[str, int]:
    """Return the sizes of attention with a latent, or with a state in some layers; nothing for others."""
    if kind == "deepseek_v3":
        sizes = {ours: config.size(theirs) for ours, theirs in LATENT.items()}
        return sizes | {"head_dim": config.size("qk_nope_head_dim") + sizes["rotary"]}
    if kind != "qwen3_5_moe_text":
        return {}
    layers, heads = config.size("num_hidden_layers"), config.size("linear_num_value_heads")
    keys, values = config.size("linear_key_head_dim"), config.size("linear_value_head_dim")
    return {
        "linear_layers": layers - layers // config.size("full_attention_interval"),
        "linear_keys": config.size("linear_num_key_heads") * keys,
        "linear_values": heads * values,
        "state": heads * keys * values,
    }


def _small(kind: str, shape: ModelShape) -> int:
    """Return the numbers of a layer in biases of experts and routers, sinks, and norms of a latent or of all heads."""
    if kind == "gpt_oss":
        return shape.heads + shape.experts * (1 + 2 * shape.intermediate + shape.hidden)
    if kind == "minimax_m2":
        return (shape.heads + shape.kv_heads) * shape.head_dim
    return shape.query_latent + shape.latent


def _windows(kind: str, config: "_Config", layers: int) -> tuple[int, int]:
    """Return the window length and the number of windowed layers."""
    window = config.size("sliding_window", 0)
    if not window or (kind.startswith("qwen") and not config.flag("use_sliding_window")):
        return 0, 0
    types = config.content.get("layer_types")
    if isinstance(types, list):
        return window, min(sum(attention == "sliding_attention" for attention in types), layers)
    if kind.startswith("gemma3"):
        return window, layers - layers // config.size("sliding_window_pattern", 6)
    if kind in {"gemma2", "gpt_oss"}:  # every other layer, the first one too
        return window, layers - layers // 2
    return window, layers


class _Config(msgspec.Struct, frozen=True):
    """Keys of a config.json, each checked when it is read."""

    content: dict[str, Any]
    origin: str

    def size(self, key: str, default: int | None = None) -> int:
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**7:
            told = "is missing" if value is None else f"= {value!r}"
            raise InputError(f"{self.origin}: {key} {told}; needs a whole number from 1 to {10**7}")
        if value == 0 and default != 0:
            raise InputError(f"{self.origin}: {key} = 0; needs a whole number from 1 to {10**7}")
        return value

    def flag(self, key: str) -> bool:
        return self.content.get(key) is True
