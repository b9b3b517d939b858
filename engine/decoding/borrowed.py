"""What an EAGLE head borrows of a target that runs elsewhere: its embedding and its LM head, and no layer."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from specfleet.engine.decoding.admitted import config_of
from specfleet.engine.decoding.checkpoints import read_named, read_tensors, stored_tensors
from specfleet.engine.decoding.eagle_files import EMBEDDING, LM_HEAD
from specfleet.engine.decoding.folders import explained
from specfleet.engine.decoding.llama import SCALED, is_lean
from specfleet.engine.decoding.models import CausalLM, choose_device

INPUT, OUTPUT = f"model.{EMBEDDING}", LM_HEAD  # names in checkpoints of the types that the lean pass runs


def borrowed_names(head: Path, target: Path) -> frozenset[str] | None:
    """Return the tensors of a target's folder that the head in another folder needs.

    None where that is the whole target: other types may scale logits or name tensors otherwise, and pickled files have
    no names.
    """
    config = config_of(target)
    if not is_lean(config) or config.model_type in SCALED:
        return None
    of_head = {name.removeprefix("model.") for name in stored_tensors(head) or read_tensors(head)}
    last = INPUT if config.tie_word_embeddings else OUTPUT
    names = frozenset([INPUT] * (EMBEDDING not in of_head) + [last] * (LM_HEAD not in of_head))
    return names if names <= stored_tensors(target).keys() else None


def load_borrowed(folder: Path, names: frozenset[str], dtype: torch.dtype) -> CausalLM:
    """Load these tensors of a target's folder; its other weights have no memory, so that it runs no tokens."""
    place = choose_device()
    with explained(folder, "no embedding or LM head can be loaded from it"):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config_of(folder), dtype=dtype)
        tensors = {name: tensor.to(place, dtype) for name, tensor in read_named(folder, names).items()}
        model.load_state_dict(tensors, strict=False, assign=True)
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    return CausalLM(model, device=place)
