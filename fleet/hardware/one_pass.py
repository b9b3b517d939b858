"""Drafters of blocks by their config.json: DFlash and DSpark read hidden states, P-EAGLE is a head, PARD a model.

Names and keys are those that vLLM and SGLang read.
"""

from collections.abc import Mapping
from typing import Any

from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.positions import LAYER
from specfleet.fleet.inputs.text import shortened

LONGEST = 4096  # tokens of a block where nothing limits it, as drafters.depth
FLASH = ("dflash", "dspark")  # kinds that make keys and values of the target's hidden states
OF_HEADS = ("draft_vocab_size", "target_hidden_size", "quantization_config", "tie_word_embeddings")
LAYER_KEYS = ("target_layer_ids", "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids")


def block_of(content: Mapping[str, Any], origin: str) -> tuple[str, dict[str, int]]:
    """Return the kind of a drafter of blocks, "" for others, and its `block`, `taps` and `markov` (see `ModelShape`).

    Raises InputError, which begins with `origin`, for kinds that are not read, and for missing sizes.
    """
    table = content.get("dflash_config")
    own = {**content, **(table if isinstance(table, Mapping) else {})}
    names = shortened(content.get("architectures") or [])
    said = " ".join(
        str(own.get(key))
        for key in ("architectures", "model_type", "speculators_model_type", "auto_map", "spd_type", "projector_type")
    ).lower()
    tables = shipped_tables("published")["one_pass"]
    kind = next((kind for mark, kind in tables["kinds"].items() if mark in said or _is_set(own, mark)), "")
    marks = [(mark, name) for mark, name in tables["names"].items() if mark in said]
    marks += [(key, name) for key, name in tables["keys"].items() if _is_set(own, key) and not kind]
    for mark, name in marks:
        raise InputError(
            f"{origin}: {mark} in architectures = {names}, model_type or a key: {name} drafts a block in one pass, and "
            "its sizes are not read; give DFlash, DSpark, P-EAGLE, PARD, an EAGLE head, a small model, or lookup"
        )
    if kind not in FLASH:
        kind = "peagle" if kind and "eagle" in said else kind
        return kind, {"block": LONGEST} if kind else {}
    layers = next((own[key] for key in LAYER_KEYS if own.get(key) is not None), None)
    if not isinstance(layers, list) or not 0 < len(layers) <= LONGEST:
        raise InputError(f"{origin}: target_layer_ids = {shortened(layers)}; needs a list of layers of the target")
    block = _whole(own, "block_size", 2, origin)
    return kind, {
        "block": block - (kind == "dflash"),  # whose first place is the newest token
        "taps": len(layers),
        "markov": _whole(own, "markov_rank", 0, origin, 0),
    }


def sizes_of_block(content: Mapping[str, Any], kind: str, known: list[str]) -> tuple[Mapping[str, Any], str]:
    """Return the table with the sizes of a drafter of blocks, and its head, "" for PARD's model.

    Where a head's model type is none of the `known` ones, it has the form of Qwen3.
    """
    if kind not in FLASH:
        return content, ""
    inner = content.get(LAYER)
    sizes = inner if isinstance(inner, Mapping) else content
    shaped = {} if sizes.get("model_type") in known else {"model_type": "qwen3"}
    return {**sizes, **shaped, **{key: content[key] for key in OF_HEADS if content.get(key) is not None}}, kind


def _is_set(content: Mapping[str, Any], key: str) -> bool:
    """Whether a key says something; 0 is a token."""
    return content.get(key) is not None and content[key] is not False


def _whole(content: Mapping[str, Any], key: str, least: int, origin: str, default: int | None = None) -> int:
    value = content.get(key, default)
    if type(value) is not int or not least <= value <= LONGEST:
        raise InputError(f"{origin}: {key} = {shortened(value)}; needs a whole number from {least} to {LONGEST}")
    return value
