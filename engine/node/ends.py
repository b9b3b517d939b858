"""What ends the texts of a fleet: end-of-text tokens of its target, and stop strings as its tokenizer writes them."""

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from transformers.convert_slow_tokenizer import bytes_to_unicode

from engine.decoding.ends import NEVER, Ends
from engine.decoding.models import folder_of
from engine.decoding.verify import Verdict
from fleet.errors import InputError
from fleet.policies.outcome import Outcome
from fleet.scenario.settled import Fleet
from fleet.stations.messages import Join

PREFIX = "abcdef"  # what a token is put behind, so that its text does not lose a space that words begin with


def ends_of(fleet: Fleet) -> Ends:
    """Return what ends a text by itself; nothing where the scenario asks for texts as long as asked.

    Raises InputError where the target's folder does not say what the scenario needs.
    """
    workload = fleet.workload
    if not workload.ends_itself:
        return NEVER
    folder = folder_of(fleet.verifiers.model, "target")
    tokens = frozenset() if workload.ignore_eos else _end_tokens(folder)
    if not workload.stop:
        return Ends(tokens)
    tokenizer = _tokenizer(folder)
    if tokenizer is None:
        raise InputError(f"workload.stop = {list(workload.stop)}: {folder} has no tokenizer to read tokens with")
    return Ends(tokens, tuple(stop.encode() for stop in workload.stop), surfaces_of(tokenizer))


def outcome_of(verdict: Verdict, length: int, join: Join) -> Outcome:
    """Return what a step yields for a request whose text has `length` tokens by now; an end beyond its goal is none."""
    ended = verdict.ended if length <= join.prompt_tokens + join.new_tokens else 0
    return Outcome(verdict.accepted, ended)


def surfaces_of(tokenizer: Any) -> list[bytes]:
    """Return what each token adds to a text, in UTF-8, by its id."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = json.dumps(json.loads(backend.to_str())["decoder"]) if backend is not None else ""
    in_bytes = {letter: byte for byte, letter in bytes_to_unicode().items()} if '"ByteLevel"' in decoder else {}
    falls_back = '"ByteFallback"' in decoder
    before = [tokenizer.convert_ids_to_tokens(token) for token in tokenizer(PREFIX, add_special_tokens=False).input_ids]
    surfaces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, number in vocabulary.items():
        if falls_back and len(token) == len("<0x00>") and token.startswith("<0x"):
            surfaces[number] = bytes.fromhex(token[3:5])
        elif in_bytes and all(letter in in_bytes for letter in token):
            surfaces[number] = bytes(in_bytes[letter] for letter in token)
        else:
            text = tokenizer.convert_tokens_to_string([*before, token])
            surfaces[number] = text[text.find(PREFIX) + len(PREFIX) :].encode()
    return surfaces


def _end_tokens(folder: Path) -> frozenset[int]:
    """The end-of-text tokens of a target: those that generation would stop at or, if it knows none, its tokenizer's."""
    if (folder / "generation_config.json").is_file():
        config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    else:
        config = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    stated = config.eos_token_id
    if stated is None:
        tokenizer = _tokenizer(folder)
        stated = None if tokenizer is None else tokenizer.eos_token_id
    if stated is None:
        raise InputError(
            f"workload.ignore_eos = false: {folder} states no end-of-text token (eos_token_id in "
            "generation_config.json, config.json or its tokenizer); allowed: true, or such a token there"
        )
    return frozenset([stated] if isinstance(stated, int) else stated)


def _tokenizer(folder: Path) -> Any:
    """The target's tokenizer; None where its folder has none."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return None
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)
