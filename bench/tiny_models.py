"""Tiny random models of every type: two layers, a window narrower than a draft, and every scale and cap set."""

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

VOCABULARY = 64
WINDOW = 3  # tokens: less than a draft is deep
POSITIONS = 128
NOISE = 0.1  # on all weights, so that no norm is one and no bias zero
KIN_NOISE = 0.04  # on the weights of a drafter that guesses in part
RANDOM = 0.3  # standard deviation of fresh weights: large, so that texts vary

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": POSITIONS,
    "n_positions": POSITIONS, "n_ctx": POSITIONS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48,
    "d_model": 32, "dff": 48, "ffn_dim": 48, "num_layers": 2, "word_embed_proj_dim": 32, "embedding_size": 32,
    "sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1, "partial_rotary_factor": 0.5,
    "rope_theta": 10_000.0, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "is_decoder": True,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "num_experts_per_token": 2, "moe_k": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24,
    "shared_intermediate_size": 24, "n_shared_experts": 1, "num_shared_experts": 1, "moe_num_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_dense_layers": 1, "type_vocab_size": 1,
    "query_pre_attn_scalar": 8, "logits_scaling": 4.0, "logit_scale": 0.25, "final_logit_softcapping": 2.0,
    "attn_logit_softcapping": 2.0, "initializer_range": RANDOM, "tie_word_embeddings": False,
}  # fmt: skip
"""Sizes, switches and scales by the names that configurations have for them; each takes those that it knows."""

CHANGES: dict[str, dict[str, Any]] = {
    "cwm": {"bos_token_id": 1, "eos_token_id": 2},
    "dbrx": {
        "n_heads": 4, "n_layers": 2, "max_seq_len": POSITIONS,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10_000.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
    },
    "granitemoehybrid": {"layer_types": ["full_attention"] * 2, "mamba_n_heads": 8},
    "minimax_m3_vl_text": {"layer_types": ["full_attention"] * 2},
    "modernbert-decoder": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "local_attention": 2 * WINDOW},
    "phimoe": {"sliding_window": None},
    "qwen2_moe": {"use_sliding_window": False},
}  # fmt: skip
"""What a type needs beside `SIZES`."""


def rope(kind: str, **more: Any) -> dict[str, Any]:
    """A rotary embedding of that kind, as a change of a configuration."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **more}}


ORIGINAL = {"original_max_position_embeddings": POSITIONS // 2}  # tokens that it was first trained for
LONGROPE = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [4.0, 5.0, 6.0, 7.0]}
NO_WINDOW = {"sliding_window": None}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, biased attention": ("llama", {"attention_bias": True}),
    "llama, GELU": ("llama", {"hidden_act": "gelu"}),
    "llama, tied": ("llama", {"tie_word_embeddings": True, "initializer_range": 0.6}),
    "llama, one key head": ("llama", {"num_key_value_heads": 1, "head_dim": 12}),
    "llama, a head each": ("llama", {"num_key_value_heads": 4}),
    "llama, linear rope": ("llama", rope("linear", factor=2.0)),
    "llama, llama3 rope": (
        "llama",
        rope(
            "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=POSITIONS
        ),
    ),
    "llama, yarn": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=POSITIONS // 4)),
    "llama, dynamic rope": ("llama", rope("dynamic", factor=2.0)),
    "phi3, longrope": ("phi3", rope("longrope", **LONGROPE) | ORIGINAL | NO_WINDOW),
    "mistral, no window": ("mistral", NO_WINDOW),
    "qwen2, no window": ("qwen2", {"use_sliding_window": False}),
    "qwen3, no window": ("qwen3", {"use_sliding_window": False}),
    "gemma2, no caps": ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gpt2, scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt_bigcode, a head each": ("gpt_bigcode", {"multi_query": False, "num_key_value_heads": 4}),
    "opt, projected": ("opt", {"word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "phi, normed queries": ("phi", {"qk_layernorm": True}),
    "cohere, normed queries": ("cohere", {"use_qk_norm": True}),
    "stablelm, normed queries": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
}
"""Other configurations of admitted types: what the lean pass does by itself, and switches that change the numbers."""


def tiny_config(kind: str) -> PretrainedConfig:
    """Return the tiny configuration of a type, or of one of the variants."""
    model_type, changes = VARIANTS.get(kind, (kind, {}))
    default = CONFIG_MAPPING[model_type]()
    names = {*default.to_dict(), *default.attribute_map}
    sizes = {name: value for name, value in SIZES.items() if name in names}
    sizes |= CHANGES.get(model_type, {}) | changes
    kinds = set(getattr(default, "layer_types", None) or ())
    if "sliding_attention" in kinds and "layer_types" not in sizes:
        sizes["layer_types"] = ["sliding_attention", "full_attention"]
    return CONFIG_MAPPING[model_type](**sizes)


def network_of(config: PretrainedConfig) -> PreTrainedModel:
    """Return a random network of a configuration, in float64."""
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float64).double().eval()
    if network.config._experts_implementation != "eager":
        network.set_experts_implementation("eager")  # the quicker ways of experts know no float64
    if network.generation_config is not None:
        network.generation_config.eos_token_id = None  # texts have the requested length
        network.generation_config.pad_token_id = 0
    return disturb(network, NOISE, 1)


@torch.no_grad()
def disturb(network: PreTrainedModel, noise: float, seed: int) -> PreTrainedModel:
    """Add normal noise to all weights of a network, and return it."""
    generator = torch.Generator().manual_seed(seed)
    for weight in network.parameters():
        weight.add_(noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return network
