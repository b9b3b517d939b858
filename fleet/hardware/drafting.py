"""What a config.json drafts: nothing, an EAGLE head, or a module for multi-token prediction."""

from collections.abc import Mapping
from typing import Any

from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import shortened

LAYER = "transformer_layer_config"  # the sizes of a head in the format of speculators
OF_HEADS = ("draft_vocab_size", "target_hidden_size", "quantization_config", "tie_word_embeddings")
LAYERS_KEY = "eagle_aux_hidden_state_layer_ids"
OWN_TYPES = {"eagle": "eagle", "eagle3": "eagle3", "deepseek_mtp": "mtp"}  # model types of heads alone


def drafting_of(content: Mapping[str, Any], origin: str) -> tuple[Mapping[str, Any], str]:
    """Return a config.json with the sizes at its top, and what it drafts: "eagle", "eagle3", "mtp", or "" for a model.

    Raises InputError, which begins with `origin`, for drafters that draft a block in one pass, and what is not known.
    """
    kind, stated = str(content.get("model_type") or ""), content.get("speculators_model_type")
    names = content.get("architectures") or []
    said = f"{names} {kind} {stated}".lower()
    tables = shipped_tables("published")["one_pass"]
    marks = [(mark, name) for mark, name in tables["names"].items() if mark in said]
    for mark, name in [*marks, *((key, name) for key, name in tables["keys"].items() if content.get(key))]:
        raise InputError(
            f"{origin}: {mark} in architectures = {shortened(names)}, model_type or a key: {name} drafts a block in "
            "one pass, which has no model here; give an EAGLE head, a small model, or lookup"
        )
    reads_layers = _reads_layers(content, origin)
    if stated is not None:  # sizes in a table of their own, the draft's vocabulary at the top
        inner = content.get(LAYER)
        if stated not in ("eagle", "eagle3", "mtp") or not isinstance(inner, Mapping):
            raise InputError(
                f"{origin}: speculators_model_type = {shortened(stated)}, {LAYER} = {shortened(inner, 60)}; allowed: "
                "eagle, eagle3, mtp, with a table"
            )
        return {**inner, **{key: content[key] for key in OF_HEADS if content.get(key) is not None}}, str(stated)
    if kind in OWN_TYPES:
        return content, OWN_TYPES[kind]
    if "eagle3" in said or content.get("draft_vocab_size") is not None or reads_layers:
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
    if eagle.get("use_aux_hidden_state", True) is not True:
        raise InputError(f"{origin}: eagle_config.use_aux_hidden_state = false; allowed: true")
    if layers is not None and not (isinstance(layers, list) and len(layers) == 3):
        raise InputError(f"{origin}: {LAYERS_KEY} = {shortened(layers)}; allowed: a list of three layers")
    return table is not None or layers is not None
