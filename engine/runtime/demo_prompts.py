"""The demo's prompts for any model: token ids of the demo pair, or their text in the tokens of another tokenizer."""

from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from engine.demo_pair.corpus import FOLDER, read_prompts

OWN = FOLDER / "target" / "tokenizer.json"


def demo_prompts(group: Literal["calibration", "evaluation"], folder: Path) -> list[list[int]]:
    """Return the prompts of a group for the model in `folder`; without a tokenizer there, the demo pair's token ids.

    To a model with a tokenizer of its own, those ids would be noise, and what it accepts of noise says nothing.
    """
    prompts = read_prompts(group)
    files = [*folder.glob("tokenizer*"), *folder.glob("vocab*"), *folder.glob("*.model")]
    fast = folder / "tokenizer.json"
    if not files or (fast.is_file() and fast.read_bytes() == OWN.read_bytes()):
        return prompts
    own, tokenizer = Tokenizer.from_file(str(OWN)), AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return [tokenizer.encode(own.decode(prompt)) for prompt in prompts]
