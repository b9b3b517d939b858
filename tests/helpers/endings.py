"""A tiny target whose texts end by themselves: end-of-text tokens, and a tokenizer that stop strings are read with."""

import json
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from tests.helpers.pairs import VOCABULARY

END_TOKENS = [11, 29]
STOPS = ["aba", "bb", "éa"]


def write_ending_target(tiny: Path) -> Path:
    """Write the tiny target once more, with what ends its texts; return its folder."""
    folder = tiny / "ending"
    if not folder.is_dir():
        shutil.copytree(tiny / "target", folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END_TOKENS}))
        new_tokenizer().save_pretrained(folder)
    return folder


@cache
def new_tokenizer() -> Any:
    """Byte-level tokens of one to four letters, which stop strings cross; and the two bytes of an é, one by one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["".join(word) for size in (1, 2, 3, 4) for word in product("ab", repeat=size)]
    tokens = [*words, *"cdefgh", "Ã", "©", "<|end|>", "Ġ"]  # as byte-level tokenizers write é and a space
    assert len(tokens) == VOCABULARY
    raw = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = {"eos_token": "<|end|>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, clean_up_tokenization_spaces=False, **special)


@cache
def generated(
    folder: Path, prompt: tuple[int, ...], new_tokens: int, ignore_eos: bool, stop: tuple[str, ...]
) -> list[int]:
    """What transformers' own generation says after a prompt, in float64."""
    import torch

    wanted: dict[str, Any] = {"stop_strings": list(stop), "tokenizer": new_tokenizer()} if stop else {}
    asked = torch.tensor([prompt])
    text = _model(folder).generate(
        asked, attention_mask=torch.ones_like(asked), max_new_tokens=new_tokens, do_sample=False, pad_token_id=0,
        eos_token_id=None if ignore_eos else END_TOKENS, **wanted,
    )  # fmt: skip
    return text[0, len(prompt) :].tolist()


@cache
def _model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    model.generation_config.eos_token_id = None  # the tests say which
    return model
