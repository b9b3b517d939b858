"""The demo pair's text: the Python standard library's own sources, held out by file.

Every Python installation has it, so no download is needed. A hash of its path decides whether a file is held out.
The tokenizer and the prompts are committed and stay as they are: the library's text differs between versions of Python.
"""

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerFast

Split = Literal["train", "held-out"]

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "ensurepip", "__pycache__", "turtledemo"}
HELD_OUT_SHARE = 0.12  # of the files


def split_of(relative: str) -> Split:
    """Return which group a file belongs to, from its path in the library."""
    share = int.from_bytes(hashlib.sha256(relative.encode()).digest()[:4]) / 2**32
    return "held-out" if share < HELD_OUT_SHARE else "train"


def texts(split: Split) -> Iterator[str]:
    """Yield the texts of a group's files, in order of path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if LEFT_OUT.isdisjoint(relative.parts) and split_of(relative.as_posix()) == split:
            text = path.read_text(encoding="utf-8", errors="ignore")
            if text.strip():
                yield text


def token_stream(tokenizer: PreTrainedTokenizerFast, split: Split) -> np.ndarray:
    """Return a group's text as one array of token ids (tokens,), files joined by the end-of-text token."""
    encode = tokenizer.backend_tokenizer.encode
    pieces = [np.array([tokenizer.eos_token_id, *encode(text).ids], dtype=np.int64) for text in texts(split)]
    return np.concatenate(pieces)
