"""Checks that drafter and target read the same token ids: by the content of tokenizers, not by the bytes of files.

Two models of a family may have embeddings of different padded lengths and still share a tokenizer. The meaning of ids
must be equal. The split of text into ids is compared as well: a drafter that was trained on other splits would guess
badly. Templates, padding and truncation are not compared.
"""

import json
from pathlib import Path
from typing import Any

from specfleet.engine.decoding.folders import explained, folder_of, read_config, read_tokenizer
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_json

FAST = "tokenizer.json"
OTHERS = ("tokenizer.model", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "vocab.txt", "tiktoken.model")
STEPS = ("normalizer", "pre_tokenizer")
KEYS = ("drafters.model", "verifiers.model")


def check_shared_tokenizer(drafter: str, target: str, keys: tuple[str, str] = KEYS) -> None:
    """Raise InputError unless both models read the same token ids, or if the files of one cannot be read.

    Two folders without a tokenizer pass if their vocabularies have the same length: their prompts are ids. `keys`: that
    name them in errors; two models of one side may be compared.
    """
    pair = list(zip(keys, (drafter, target), strict=True))
    names = " and ".join(f"{key} = {model!r}" for key, model in pair)
    folders = [folder_of(model, "target" if key.startswith("verifiers") else "drafter", key) for key, model in pair]
    sizes = [int(read_config(folder).get_text_config().vocab_size) for folder in folders]
    there = [any((folder / name).is_file() for name in (FAST, *OTHERS)) for folder in folders]
    if all(there):
        with explained(folders[1], f"its tokenizer cannot be held against that of {drafter!r}"):
            difference = find_difference(*(read_content(folder) for folder in folders))
        if difference:
            raise InputError(f"{names} do not share a tokenizer: {difference}")
    elif any(there):
        having, lacking = (folders[there.index(has)] for has in (True, False))
        raise InputError(
            f"{names}: {lacking} holds no tokenizer to compare; if both models read the same ids, copy {FAST} from "
            f"{having} into it"
        )
    elif sizes[0] != sizes[1]:
        raise InputError(
            f"{names} do not share a tokenizer (vocabularies of {sizes[0]} and {sizes[1]} tokens, and no {FAST} in "
            "either folder to compare)"
        )


def read_content(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's tokenizer in the format of tokenizer.json; other files are translated."""
    file = folder / FAST
    content = read_json(file) if file.is_file() else json.loads(read_tokenizer(folder).backend_tokenizer.to_str())
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InputError(f"{file}: no tokenizer; expected a table 'model'")
    return content


def find_difference(drafter: dict[str, Any], target: dict[str, Any]) -> str:
    """Return the difference of two tokenizers, drafter's and target's; empty if ids do not depend on any."""
    models = drafter["model"], target["model"]
    kinds = [model.get("type") for model in models]
    if kinds[0] != kinds[1]:
        return f"models of kind {kinds[0]} and {kinds[1]}"
    ids = [_ids_of(content) for content in (drafter, target)]
    if ids[0] != ids[1]:
        number = min(id_ for id_ in ids[0].keys() | ids[1].keys() if ids[0].get(id_) != ids[1].get(id_))
        return f"id {number} is {ids[0].get(number)!r} and {ids[1].get(number)!r}"
    special = [_specials_of(content) for content in (drafter, target)]
    if special[0] != special[1]:
        return f"id {min(special[0] ^ special[1])} is a special token of one only"
    if _merges_of(models[0]) != _merges_of(models[1]):
        return "their merges"
    for step in STEPS:
        if drafter.get(step) != target.get(step):
            return f"their {step}"
    return ""


def _ids_of(content: dict[str, Any]) -> dict[int, str]:
    """Return the token of each id, added tokens included."""
    vocabulary = content["model"].get("vocab") or {}
    if isinstance(vocabulary, list):  # of unigrams: tokens with their scores
        tokens = {number: str(entry[0]) for number, entry in enumerate(vocabulary)}
    else:
        tokens = {number: token for token, number in vocabulary.items()}
    return tokens | {token["id"]: token["content"] for token in content.get("added_tokens") or ()}


def _specials_of(content: dict[str, Any]) -> set[int]:
    return {token["id"] for token in content.get("added_tokens") or () if token.get("special")}


def _merges_of(model: dict[str, Any]) -> list[list[str]]:
    """Return the merges in order: files of different age write each as a string or as a pair."""
    return [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in model.get("merges") or ()]
