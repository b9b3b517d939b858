"""Numbers of a shape's parameters: a checkpoint's, a model's of transformers, and those that a token uses."""

import json
from typing import Any

import pytest

from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.hardware.configs import shape_of_config
from specfleet.fleet.hardware.shipped import shape_of

COUNTED = [name for name, table in shipped_models().items() if "parameters" in table]
MODELS = [name for name in COUNTED if not shape_of(name).head]
ROUNDED = 0.02  # by their authors: heads of 0.24 to 0.99 10^9 parameters, and 1.04 10^12 of Kimi K2


@pytest.mark.parametrize("model", COUNTED)
def test_a_shape_has_as_many_parameters_as_its_checkpoint(model: str) -> None:
    """Exactly, unless the published number is rounded to millions."""
    published = shipped_models()[model]["parameters"]
    allowed = ROUNDED if shape_of(model).head or model.startswith("kimi") else 0.01
    if model in MODELS and published % 10**6:
        allowed = 0.0
    assert shape_of(model).parameters() == pytest.approx(published, rel=allowed)
    assert shipped_models()[model]["source"].startswith("stated: ")


TINY = {
    "num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 80, "vocab_size": 96, "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
SHARED_EXPERT: dict[str, Any] = {
    "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 24,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT = {"kv_lora_rank": 20, "q_lora_rank": 28, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10}
FAMILIES: dict[str, list[dict[str, Any]]] = {
    "llama": [{}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"num_key_value_heads": 6, "head_dim": 8}],
    "mistral": [{}, {"sliding_window": 16}],
    "qwen2": [{"head_dim": 8}, {"tie_word_embeddings": True, "head_dim": 8}],
    "qwen3": [{}, {"num_key_value_heads": 1, "tie_word_embeddings": True}],
    "gemma2": [{"tie_word_embeddings": True, "sliding_window": 16}],
    "glm4": [{}, {"attention_bias": True}],
    "gemma3_text": [{"tie_word_embeddings": True, "sliding_window": 16}],
    "mixtral": [{"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}],
    "qwen3_moe": [{"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}],
    "gpt_oss": [{"num_local_experts": 4, "num_experts_per_tok": 2}],
    "minimax_m2": [{"num_local_experts": 6, "num_experts_per_tok": 2}],
    "deepseek_v3": [SHARED_EXPERT | LATENT | {"num_key_value_heads": 6}],
    "glm4_moe": [SHARED_EXPERT | {"attention_bias": True}],
}


@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind in FAMILIES for change in FAMILIES[kind]])
def test_a_shape_has_as_many_parameters_as_transformers_makes(kind: str, change: dict[str, Any]) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **TINY | change)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    counted = sum(parameter.numel() for parameter in model.parameters())
    shape = shape_of_config("tiny", json.loads(config.to_json_string(use_diff=False)), "config.json")
    assert shape.parameters() == counted


def active(name: str) -> float:
    """Parameters that one token uses, in 10^9, the output head included and the embedding not."""
    shape = shape_of(name)
    idle = shape.expert_numbers * (1 - shape.experts_used / shape.experts)
    return (shape.matrices() - idle + shape.hidden * shape.head_outputs) / 1e9


def test_mixtures_use_as_many_parameters_as_published() -> None:
    """DeepSeek-V3 36.6 (README_WEIGHTS), gpt-oss 5.1 and 3.6 (model cards), Qwen3 22, Qwen3.5 17, Kimi K2.5 32."""
    published = {"deepseek-v3": 36.6, "gpt-oss-120b": 5.1, "gpt-oss-20b": 3.6, "qwen3.5-397b-a17b": 17,
                 "qwen3-235b-a22b": 22, "kimi-k2.5": 32}  # fmt: skip
    assert {name: active(name) for name in published} == pytest.approx(published, rel=0.045)
