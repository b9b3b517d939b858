"""The model types that the engine runs. It refuses all others.

`python -m bench zoo` proves the list: a tiny random model of every type computes what transformers computes, and
decodes the same text with every drafter. So a new type of transformers is refused until the zoo proves it.
"""

from pathlib import Path

import torch
from transformers import PretrainedConfig

from specfleet.engine.decoding.folders import read_config
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_json

NAMES = """
afmoe apertus arcee aria_text beam biogpt bitnet cohere cohere2 cohere2_moe ctrl cwm dbrx diffllama dots1 ernie4_5
ernie4_5_moe exaone4 exaone_moe flex_olmo flint gemma gemma2 gemma3_text glm glm4 glm4_moe gpt-sw3 gpt2 gpt_bigcode
gpt_neox gpt_oss granite granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hrm_text
hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax internlm3 iquestcoder jais2 jetmoe kolibri1 laguna llama mellum
minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral modernbert-decoder nanochat nemotron olmo olmo2
olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 solar_open stablelm
starcoder2 vaultgemma
"""
ADMITTED = frozenset(NAMES.split())
QUANTISED = {"bitnet", "gpt_oss"}  # their own modules in transformers know the scales of their published weights
LAYERS = {"full_attention", "sliding_attention"}  # their keys and values are a row that can be rolled back
NO_WINDOW = {"phimoe", "qwen2_moe"}  # types with sliding layers that do not pass the window to attention
STATIC_ROPE = {"default", "linear", "llama3", "yarn"}  # frequencies that do not depend on the length of the text
LEARNED = ("wpe", "embed_positions", "position_embeddings")  # names of embeddings of positions
ROPE_BY_LENGTH = {"dynamic", "longrope"}  # frequencies that depend on it, beyond the original training length


def config_of(folder: Path) -> PretrainedConfig:
    """Read the configuration of a model in a local folder; InputError if the engine does not run its type."""
    content = read_json(folder / "config.json")
    if isinstance(content, dict):
        names = [str(content.get("model_type") or ""), str(content.get("architectures") or "")]
        if any("mtp" in name.lower() or "nextn" in name.lower() for name in names):
            raise InputError(
                f"{folder}: {' '.join(names)} is a head for multi-token prediction (MTP), with which the engine does "
                "not draft; give a causal language model, or an EAGLE head with drafters.kind = 'eagle'"
            )
    config = read_config(folder)
    check(config)
    return config


def check(config: PretrainedConfig) -> None:
    """Raise InputError unless the engine runs models of this configuration."""
    if reason := refusal(config):
        raise InputError(f"model type {config.model_type!r} is refused: {reason}")


def refusal(config: PretrainedConfig) -> str:
    """Return why the engine does not run models of this configuration, in one line; empty if it does."""
    kind = config.model_type
    if kind not in ADMITTED:
        return "no test shows that its text stays the same; docs/models.md lists what runs, and why others do not"
    if reason := _of_weights(config):
        return reason
    if getattr(config, "use_bidirectional_attention", None) or not getattr(config, "is_causal", True):
        return "its tokens look ahead (use_bidirectional_attention or is_causal in its config.json)"
    supported = STATIC_ROPE | ROPE_BY_LENGTH
    if unknown := {str(rope.get("rope_type")) for rope in ropes(config)} - supported:
        return f"rotary embedding of type {', '.join(sorted(unknown))}; the engine knows {', '.join(sorted(supported))}"
    return ""


def _of_weights(config: PretrainedConfig) -> str:
    """Return why layers or weights of a configuration are refused; empty if they are not."""
    quantised = getattr(config, "quantization_config", None)
    if quantised and config.model_type not in QUANTISED:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised.quant_method
        return (
            f"its weights are quantised (quantization_config: {method}), and the engine computes in float32, float64, "
            "bfloat16 or float16; give a checkpoint that is not, or another engine with --engine"
        )
    if others := set(getattr(config, "layer_types", None) or ()) - LAYERS:
        return f"it has layers of kind {', '.join(sorted(others))}; the engine runs {' and '.join(sorted(LAYERS))}"
    return ""


def ropes(config: PretrainedConfig) -> list[dict[str, object]]:
    """Return the parameters of all rotary embeddings of a model: one, one for each kind of layer, or none."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return (
        [parameters] if "rope_type" in parameters else [rope for rope in parameters.values() if isinstance(rope, dict)]
    )


def slides(config: PretrainedConfig) -> bool:
    """Whether some layers see only the last tokens. Rows stay whole: a rollback may need older tokens again."""
    kinds = getattr(config, "layer_types", None)
    return "sliding_attention" in kinds if kinds else bool(getattr(config, "sliding_window", None))


def longest_row(config: PretrainedConfig) -> int:
    """Return the maximum number of tokens of a row, drafts included, before its results change; 0 for no limit.

    Beyond it, rotary frequencies depend on the tokens of one pass, or a window begins that attention does not apply.
    """
    limits = []
    for rope in ropes(config):
        if rope.get("rope_type") in ROPE_BY_LENGTH:
            positions = int(config.max_position_embeddings)
            limits.append(min(positions, int(rope.get("original_max_position_embeddings") or positions)))
    if config.model_type in NO_WINDOW and slides(config):
        limits.append(config.sliding_window)
    return min(limits, default=0)


def known_positions(model: torch.nn.Module) -> int:
    """Return the maximum positions of a row, learned or else; 0 for no limit."""
    return min((limit for limit in (learned_positions(model), longest_row(model.config)) if limit), default=0)


def learned_positions(model: torch.nn.Module) -> int:
    """Return the number of learned positions; 0 for a model that computes them, without a limit."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in LEARNED and isinstance(module, torch.nn.Embedding):
            return int(model.config.max_position_embeddings)
    return 0
