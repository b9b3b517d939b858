"""The demo pair's text: the Python standard library's own sources, held out by file.

Every Python installation has it, so no download is needed. Files go to one of three groups by a hash of their path:
training, calibration prompts, evaluation prompts. Prompts are committed as token ids, because the library's text
differs between Python versions and runs should not.
"""

import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Split = Literal["train", "calibration", "evaluation"]

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "ensurepip", "__pycache__", "turtledemo"}
HELD_OUT_SHARE = 0.06  # of the files, for each of the two prompt groups
END_OF_TEXT = "<|end|>"
FOLDER = Path(__file__).parent


def library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def split_of(relative: str) -> Split:
    """Tell which group a file belongs to, from its path in the library."""
    share = int.from_bytes(hashlib.sha256(relative.encode()).digest()[:4]) / 2**32
    if share < HELD_OUT_SHARE:
        return "calibration"
    return "evaluation" if share < 2 * HELD_OUT_SHARE else "train"


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


def cut_prompts(tokenizer: Tokenizer, split: Split, count: int, tokens: int) -> list[dict[str, object]]:
    """Cut `count` prompts of `tokens` ids from a held-out group, spread over its files, each from a line's start."""
    texts = list(files(split))
    rng = np.random.default_rng(0)
    prompts: list[dict[str, object]] = []
    while len(prompts) < count:
        relative, text = texts[len(prompts) % len(texts)] if len(prompts) < len(texts) else texts[rng.integers(len(texts))]
        starts = [0, *(index + 1 for index, letter in enumerate(text) if letter == "\n")]
        offset = int(starts[rng.integers(len(starts))])
        ids = tokenizer.encode(text[offset : offset + 12 * tokens]).ids[:tokens]
        if len(ids) == tokens:
            prompts.append({"file": relative, "offset": offset, "prompt_ids": ids})
        else:
            texts = [other for other in texts if other[0] != relative] if len(text) < 4 * tokens else texts
    return prompts


def read_prompts(split: Literal["calibration", "evaluation"]) -> list[list[int]]:
    """Return the committed prompts of a group as token ids, each as long as it was cut."""
    content = json.loads((FOLDER / "prompts" / f"{split}.json").read_text())
    return [prompt["prompt_ids"] for prompt in content]
