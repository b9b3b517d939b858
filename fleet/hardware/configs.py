"""From a config.json of transformers to a shape. Unknown model types are refused in one line."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fleet.errors import InputError
from fleet.hardware.shape import ModelShape

NESTED = {"gemma3": "text_config"}  # text part of a multimodal model
MODEL_TYPES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3", "gemma3_text", "glm4_moe",
    "eagle", "eagle3",
)  # fmt: skip
GEMMA_DEFAULTS = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
    "tie_word_embeddings": True, "sliding_window": 4096,
}  # fmt: skip
EXPERTS = {  # keys of a mixture of experts, by ours
    "mixtral": {"experts": "num_local_experts", "experts_used": "num_experts_per_tok"},
    "qwen3_moe": {
        "experts": "num_experts", "experts_used": "num_experts_per_tok", "intermediate": "moe_intermediate_size",
    },
    "glm4_moe": {
        "experts": "n_routed_experts", "experts_used": "num_experts_per_tok", "intermediate": "moe_intermediate_size",
        "dense_layers": "first_k_dense_replace", "dense_intermediate": "intermediate_size",
    },
}  # fmt: skip


def shape_of_config(name: str, content: Any, origin: str) -> ModelShape:
    """Return the shape of a config.json; `origin` begins the line of an InputError.

    Raises InputError for an unknown model type and for a missing or invalid size.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{origin}: needs the table of a config.json; holds {type(content).__name__}")
    kind = content.get("model_type")
    if kind not in MODEL_TYPES:
        raise InputError(f"{origin}: model_type = {kind!r} is not known; allowed: {', '.join(MODEL_TYPES)}")
    if kind in NESTED:
        content = content.get(NESTED[kind], content)
        if not isinstance(content, Mapping):
            raise InputError(f"{origin}: {NESTED[kind]} needs a table")
    gemma = kind.startswith("gemma3")
    renamed = {"num_experts": content.get("num_local_experts")}  # by transformers 5
    config = _Config(renamed | (GEMMA_DEFAULTS if gemma else {}) | dict(content), origin)
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
        "intermediate": config.size("intermediate_size"),
        "vocabulary": config.size("vocab_size"),
        "tied": config.flag("tie_word_embeddings"),
        "query_bias": kind == "qwen2" or config.flag("attention_bias"),
        "output_bias": config.flag("attention_bias") and kind != "glm4_moe",
        "head_norms": gemma or kind in ("qwen3", "qwen3_moe") or config.flag("use_qk_norm"),
        "norms": 4 if gemma else 2,
        "window": window,
        "windowed_layers": windowed,
    }
    if kind in ("eagle", "eagle3"):
        norms = 1 if kind == "eagle" else 3  # as in published heads
        sizes |= {"head": kind, "norms": norms, "draft_vocabulary": config.size("draft_vocab_size", 0)}
    made = msgspec.convert(sizes | _experts(kind, config), ModelShape)
    if made.heads % made.kv_heads:
        raise InputError(f"{origin}: num_attention_heads = {heads} is no multiple of {made.kv_heads} key-value heads")
    return made


def _experts(kind: str, config: "_Config") -> dict[str, int]:
    """Return the sizes of a mixture of experts; nothing for dense models."""
    sizes = {ours: config.size(theirs) for ours, theirs in EXPERTS.get(kind, {}).items()}
    if kind == "glm4_moe":
        sizes["shared_intermediate"] = sizes["intermediate"] * config.size("n_shared_experts")
    return sizes


def _windows(kind: str, config: "_Config", layers: int) -> tuple[int, int]:
    """Return the window length and the number of windowed layers."""
    window = config.size("sliding_window", 0)
    if not window or (kind.startswith("qwen") and not config.flag("use_sliding_window")):
        return 0, 0
    types = config.content.get("layer_types")
    if isinstance(types, list):
        return window, min(sum(one == "sliding_attention" for one in types), layers)
    if kind.startswith("gemma3"):
        return window, layers - layers // config.size("sliding_window_pattern", 6)
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
