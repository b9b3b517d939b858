"""Load a causal language model from a local folder and run it on one decoding stream."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import Cache
from transformers.utils import logging

from engine.cache import new_cache
from specfleet.errors import InputError

DEMO_PAIR = Path(__file__).parent / "demo_pair"
PRECISIONS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class CausalLM:
    """A model in inference mode on one device."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.eval()
        self.config = model.config
        self.device = next(model.parameters()).device
        self.vocabulary = int(model.config.vocab_size)

    def new_cache(self) -> Cache:
        """Return an empty cache for one stream."""
        return new_cache(self.config)

    @torch.inference_mode()
    def logits(self, tokens: list[int] | torch.Tensor, cache: Cache, last: int = 0) -> torch.Tensor:
        """Feed `tokens` after what `cache` holds; return the logits of the `last` positions (all if 0).

        Shape of the result: (positions, vocabulary).
        """
        inputs = torch.as_tensor(tokens, device=self.device).view(1, -1)  # (1, tokens)
        output = self.model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=last)
        return output.logits[0]


def probabilities(logits: torch.Tensor, temperature: float) -> np.ndarray:
    """Softmax of `logits` (positions, vocabulary) at `temperature` > 0, on the host as float64 of the same shape."""
    return torch.softmax(logits.double() / temperature, dim=-1).cpu().numpy()


def folder_of(name: str, role: str) -> Path:
    """Return the folder of a model: a path, or "demo" for the demo pair's `role` (drafter or target)."""
    folder = DEMO_PAIR / role if name == "demo" else Path(name)
    if not (folder / "config.json").is_file():
        raise InputError(f"model = {name!r}: {folder} holds no config.json; give a Hugging Face folder, or 'demo'")
    return folder


def load_model(name: str, role: str, precision: str = "float32", device: str = "") -> CausalLM:
    """Load a model from a local folder, never from a hub. `device`: cpu, cuda, ...; cuda if there is one when empty."""
    folder = folder_of(name, role)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    logging.disable_progress_bar()  # loading a local folder is quick
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=PRECISIONS[precision], local_files_only=True)
    return CausalLM(model.to(place))


def check_shared_tokenizer(drafter: str, target: str) -> None:
    """Raise InputError unless both models read the same token ids, as the vocabulary size and tokenizer files tell."""
    folders = folder_of(drafter, "drafter"), folder_of(target, "target")
    sizes = [AutoConfig.from_pretrained(folder, local_files_only=True).vocab_size for folder in folders]
    files = [folder / "tokenizer.json" for folder in folders]
    if sizes[0] != sizes[1] or (
        all(file.is_file() for file in files) and files[0].read_bytes() != files[1].read_bytes()
    ):
        raise InputError(
            f"drafters.model = {drafter!r} and verifiers.model = {target!r} do not share a tokenizer "
            f"(vocabularies of {sizes[0]} and {sizes[1]} tokens)"
        )
