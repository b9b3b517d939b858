"""From a config.json of transformers to a shape. Unknown model types are refused in one line."""

from collections.abc import Mapping
from typing import Any

import msgspec

from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.one_pass import FLASH, OF_HEADS, block_of, sizes_of_block
from specfleet.fleet.hardware.positions import LAYER, positions_in
from specfleet.fleet.hardware.published import precisions_in
from specfleet.fleet.hardware.shape import MAX_LAYERS, ModelShape
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import shortened

NORMS = {"eagle": 1, "eagle3": 3, "mtp": 5}  # of a layer of published heads, else 2
MAX_PARAMETERS = 10**14
LAYER_TYPES = ("full_attention", "sliding_attention", "attention")
LAYERS_KEY = "eagle_aux_hidden_state_layer_ids"
OWN_TYPES = {"eagle": "eagle", "eagle3": "eagle3", "deepseek_mtp": "mtp"}  # model types of heads alone


def shape_of_config(name: str, content: Any, origin: str) -> ModelShape:
    """Return the shape of a config.json; `origin` begins the line of an InputError.

    Raises InputError for an unknown model type and for a missing or invalid size.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{origin}: needs the table of a config.json; holds {type(content).__name__}")
    drafts, block = block_of(content, origin)
    tables, outer = shipped_tables("published")["types"], content
    if drafts in (*FLASH, "pard"):
        content, head = sizes_of_block(content, drafts, tables["types"]["known"])
    else:
        content, head = _drafting_of(content, drafts, origin)
    kind = str(content.get("model_type"))
    if kind in tables["types"]["nested"]:
        content = content.get("text_config", content)
        if not isinstance(content, Mapping):
            raise InputError(f"{origin}: text_config needs a table")
        kind = str(content.get("model_type", kind))
    if kind not in tables["types"]["known"]:
        allowed = ", ".join(tables["types"]["known"])
        problem = f"= {shortened(kind)} is not known" if content.get("model_type") is not None else "is missing"
        raise InputError(f"{origin}: model_type {problem}; allowed: {allowed}")
    kind = tables["alike"].get(kind, kind)
    renamed = {"num_experts": content.get("num_local_experts")}  # by transformers 5
    config = _Config(renamed | (tables["gemma3"] if kind.startswith("gemma3") else {}) | dict(content), origin)
    heads = config.size("num_attention_heads")
    hidden = config.size("hidden_size")
    layers = config.size("num_hidden_layers", most=MAX_LAYERS)
    _check_usual(kind, config)
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
        "head_norms": kind in tables["types"]["normed"] or (config.flag("use_qk_norm") and kind != "minimax_m2"),
        "norms": 4 if kind.startswith("gemma") or kind == "glm4" else NORMS.get(head, 2),
        "window": window,
        "windowed_layers": windowed,
        "head": head,
        "draft_vocabulary": config.size("draft_vocab_size", 0) if head else 0,
        "gated": config.flag("attn_output_gate"),
        "positions": positions_in(config.content, kind, origin),
        "mtp_modules": 0 if head else max(config.size(key, 0, MAX_LAYERS) for key in tables["types"]["modules"]),
    }
    sizes |= _of_type(kind, config) | block
    made = convert(sizes | precisions_in(dict(content) | dict(outer), kind, sizes, origin), ModelShape, origin)
    made = msgspec.structs.replace(made, small=_small(kind, made))
    _check_sizes(made, origin)
    return made


def _drafting_of(content: Mapping[str, Any], drafts: str, origin: str) -> tuple[Mapping[str, Any], str]:
    """Return a config.json with the sizes at its top, and what it drafts: "eagle", "eagle3", "mtp", or "" for a model.
    InputError, which begins with `origin`, for what is not known."""
    kind, stated = str(content.get("model_type") or ""), content.get("speculators_model_type")
    names = content.get("architectures") or []
    said = f"{names} {kind} {stated} {content.get('auto_map')}".lower()
    stated = "eagle3" if stated == "peagle" else stated
    reads_layers = _reads_layers(content, origin)
    if stated is not None or LAYER in content:  # sizes in a table of their own, the draft's vocabulary at the top
        inner = content.get(LAYER)
        if stated not in ("eagle", "eagle3", "mtp") or not isinstance(inner, Mapping):
            raise InputError(
                f"{origin}: speculators_model_type = {shortened(stated)}, {LAYER} = {shortened(inner, 60)}; allowed: "
                "eagle, eagle3, mtp, with a table"
            )
        return {**inner, **{key: content[key] for key in OF_HEADS if content.get(key) is not None}}, str(stated)
    if kind in OWN_TYPES:
        inner = content.get("model")  # as vLLM's scripts wrap a head
        wrapped = inner if isinstance(inner, Mapping) else {}
        return {**wrapped, "draft_vocab_size": content.get("truncated_vocab_size"), **content}, OWN_TYPES[kind]
    if drafts or "eagle3" in said or content.get("draft_vocab_size") is not None or reads_layers:
        return {**content, **({"model_type": "llama"} if "llama" in str(names).lower() else {})}, "eagle3"
    if "eagle" in said:
        return content, "eagle"
    if "mtp" in said or "nextn" in said:
        return {**content, "num_hidden_layers": 1, "first_k_dense_replace": 0, "layer_types": None}, "mtp"
    if content.get("num_hidden_layers") == 1:
        raise InputError(
            f"{origin}: num_hidden_layers = 1, and architectures = {shortened(names)} names no head; for an EAGLE head "
            "write EagleLlamaForCausalLM there, for one of EAGLE-3 LlamaForCausalLMEagle3"
        )
    return content, ""


def _reads_layers(content: Mapping[str, Any], origin: str) -> bool:
    """Return whether a head says which layers of its target it reads; InputError unless those are three."""
    table = content.get("eagle_config")
    eagle = table if isinstance(table, Mapping) else {}
    layers = eagle.get(LAYERS_KEY, content.get(LAYERS_KEY))
    for key, usual in (("use_aux_hidden_state", True), ("parallel_draft_step", 1)):
        if eagle.get(key) not in (None, usual):
            raise InputError(f"{origin}: eagle_config.{key} = {shortened(eagle[key])}; allowed: {usual}")
    if layers not in (None, []) and not (isinstance(layers, list) and len(layers) == 3):  # none: the usual three
        raise InputError(f"{origin}: {LAYERS_KEY} = {shortened(layers)}; allowed: a list of three layers")
    return table is not None or layers is not None


def _check_usual(kind: str, config: "_Config") -> None:
    """Raise InputError for a key that changes sizes in a way that no type here knows."""
    tables = shipped_tables("published")["types"]
    own = tables["sizes"].get(kind, {}).values()  # keys that this type reads
    known = tables["usual"] | (tables["usual_of_dense"] if not own else {}) | {"kv_lora_rank": [0]}
    known["target_hidden_size"] = [config.content.get("hidden_size")]
    for key in own:
        known.pop(key, None)
    for key, usual in known.items():
        if (value := config.content.get(key)) is not None and value not in usual:
            raise InputError(
                f"{config.origin}: {key} = {shortened(value)} is not known for {kind}; allowed: {usual[0]}"
            )
    layers = config.content.get("layer_types")
    for layer in layers if isinstance(layers, list) else ():
        if layer not in LAYER_TYPES and not (layer == "linear_attention" and kind == "qwen3_5_moe_text"):
            raise InputError(f"{config.origin}: layer_types: {shortened(layer)}; allowed: {', '.join(LAYER_TYPES)}")


def _check_sizes(shape: ModelShape, origin: str) -> None:
    """Raise InputError for sizes that contradict each other, or that no model has."""
    for part, of_all, key in (
        (shape.experts_used, shape.experts, "num_experts_per_tok"),
        (shape.dense_layers, shape.layers, "first_k_dense_replace"),
        (shape.draft_vocabulary, shape.vocabulary, "draft_vocab_size"),
    ):  # fmt: skip
        if part > of_all:
            raise InputError(f"{origin}: {key} = {part}; allowed: up to {of_all}")
    if shape.heads % shape.kv_heads:
        raise InputError(
            f"{origin}: num_attention_heads = {shape.heads} is no multiple of {shape.kv_heads} key-value heads"
        )
    if shape.parameters() > MAX_PARAMETERS:
        raise InputError(f"{origin}: its sizes make {shape.parameters():.3g} parameters; allowed: {MAX_PARAMETERS:g}")


def _of_type(kind: str, config: "_Config") -> dict[str, int]:
    """Return the sizes that only some types have: of experts, and of attention with a latent, or with a state."""
    keys = shipped_tables("published")["types"]["sizes"].get(kind, {})
    sizes = {ours: config.size(key, 0 if ours == "dense_layers" else None) for ours, key in keys.items()}
    if "dense_layers" in sizes:
        sizes["shared_intermediate"] = sizes["intermediate"] * config.size("n_shared_experts")
    if "latent" in sizes:
        sizes["head_dim"] = config.size("qk_nope_head_dim") + sizes["rotary"]
    if kind == "qwen3_5_moe_text":
        layers, heads = config.size("num_hidden_layers"), config.size("linear_num_value_heads")
        key_dim, value_dim = config.size("linear_key_head_dim"), config.size("linear_value_head_dim")
        sizes["linear_layers"] = layers - layers // config.size("full_attention_interval")
        sizes["linear_keys"] = config.size("linear_num_key_heads") * key_dim
        sizes |= {"linear_values": heads * value_dim, "state": heads * key_dim * value_dim}
    return sizes


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
    used = config.content.get("use_sliding_window", not kind.startswith("qwen"))
    if not window or not used:
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

    def size(self, key: str, default: int | None = None, most: int = 10**7) -> int:
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            problem = "is missing" if value is None else f"= {shortened(value)}"
            raise InputError(f"{self.origin}: {key} {problem}; needs a whole number from 1 to {most}")
        if value == 0 and default != 0:
            raise InputError(f"{self.origin}: {key} = 0; needs a whole number from 1 to {most}")
        return value

    def flag(self, key: str) -> bool:
        return self.content.get(key) is True
