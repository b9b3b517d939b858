"""The demo pair's text: the Python standard library's own sources, held out by file.

Every Python installation has it, so no download is needed. A hash of its path decides whether a file is held out.
Prompts come from held-out files and are committed as token ids, because the library's text differs between versions of
Python.
"""

import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from fleet.files import write_file

Split = Literal["train", "held-out"]

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "ensurepip", "__pycache__", "turtledemo"}
HELD_OUT_SHARE = 0.12  # of the files
END_OF_TEXT = "<|end|>"


def library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def split_of(relative: str) -> Split:
    """Return which group a file belongs to, from its path in the library."""
    share = int.from_bytes(hashlib.sha256(relative.encode()).digest()[:4]) / 2**32
    return "held-out" if share < HELD_OUT_SHARE else "train"


def files(split: Split) -> Iterator[tuple[str, str]]:
    """Yield (path in the library, text) of a group's files, in order of path."""
    root = library()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        if LEFT_OUT.isdisjoint(path.relative_to(root).parts) and split_of(relative) == split:
            text = path.read_text(encoding="utf-8", errors="ignore")
            if text.strip():
                yield relative, text


def train_tokenizer(vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer on the training files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for _, text in files("train")), trainer)
    return tokenizer


def token_stream(tokenizer: Tokenizer, split: Split) -> np.ndarray:
    """Return a group's text as one array of token ids (tokens,), files joined by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    pieces = [np.array([end, *tokenizer.encode(text).ids], dtype=np.int64) for _, text in files(split)]
    return np.concatenate(pieces)


def cut_prompts(tokenizer: Tokenizer, count: int, tokens: int) -> dict[str, list[dict[str, object]]]:
    """Cut `count` pairs of prompts of `tokens` ids from held-out files, in turn, each pair from a line's start.

    The first of a pair goes to calibration, the text that follows it to evaluation: different prompts from the same
    files, so that the two groups do not differ by chance in their files. No text is cut twice.
    """
    texts = [(relative, text) for relative, text in files("held-out") if len(tokenizer.encode(text).ids) > 3 * tokens]
    rng = np.random.default_rng(0)
    prompts: dict[str, list[dict[str, object]]] = {"calibration": [], "evaluation": []}
    known: set[tuple[int, ...]] = set()
    while len(prompts["calibration"]) < count:
        relative, text = texts[len(prompts["calibration"]) % len(texts)]
        starts = [0, *(index + 1 for index, letter in enumerate(text) if letter == "\n")]
        offset = int(starts[rng.integers(len(starts))])
        ids = tokenizer.encode(text[offset : offset + 16 * tokens]).ids
        pair = {tuple(ids[:tokens]), tuple(ids[tokens : 2 * tokens])}
        if len(ids) >= 2 * tokens and len(pair - known) == 2:
            known |= pair
            place = {"file": relative, "offset": offset}
            prompts["calibration"].append(place | {"prompt_ids": ids[:tokens]})
            prompts["evaluation"].append(place | {"after_tokens": tokens, "prompt_ids": ids[tokens : 2 * tokens]})
    return prompts


def write_prompts(tokenizer: Tokenizer, folder: Path, count: int, tokens: int) -> None:
    """Cut prompts and write one file a group."""
    for group, prompts in cut_prompts(tokenizer, count, tokens).items():
        write_file(folder / f"{group}.json", json.dumps(prompts) + "\n")
