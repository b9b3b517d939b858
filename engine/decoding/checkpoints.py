"""Weights of a model folder: their files, and whether they are complete.

transformers fills missing tensors at random and ignores unknown ones. Both would run another model, so both are errors
here that name the tensors.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from specfleet.engine.decoding.admitted import config_of
from specfleet.engine.decoding.folders import explained
from specfleet.engine.decoding.llama import is_lean
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_json

FILES = ("model.safetensors", "pytorch_model.bin")  # in this order, each before its shards, as in transformers
NAMED = 4  # tensors that a line names; more are counted
TABLES = ("rotary_emb.inv_freq", ".attn.masked_bias", ".attn.bias")  # tables in old checkpoints that models compute


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a model's weights; InputError if there are none, or if an index names a missing one."""
    for name in FILES:
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            return _shards(index)
    raise InputError(f"{folder}: no weights; expected {' or '.join(FILES)}, or their shards with an .index.json")


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Read all weights of a folder, on the host and in the precision of the files."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        safe = path.suffix == ".safetensors"
        with explained(path, "no tensors can be read from it"):
            part = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(part, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in part.values()):
            raise InputError(f"{path}: holds something else than tensors by name")
        tensors |= part
    return tensors


def load_whole(folder: Path, dtype: torch.dtype, layers: bool = True) -> PreTrainedModel:
    """Load a causal language model with all weights from its folder; InputError in one line if some are missing.

    - `layers`: False leaves out those of a lean model, which then lends its embedding and LM head alone.
    """
    config = config_of(folder)
    count, left_out = config.num_hidden_layers, ".layers." if is_lean(config) and not layers else None
    config.num_hidden_layers = count if left_out is None else 0
    weight_files(folder)
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()  # loading a local folder is quick
    logging.set_verbosity_error()  # warnings of transformers are errors below
    try:
        with explained(folder, "no causal language model can be loaded from it"):
            model, report = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, local_files_only=True, trust_remote_code=False,
                output_loading_info=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
    finally:
        logging.set_verbosity(verbosity)
    for name, there, wanted in sorted(report["mismatched_keys"]):
        raise InputError(f"{folder}: tensor {name} has shape {tuple(there)}; config.json asks for {tuple(wanted)}")
    if missing := report["missing_keys"]:
        raise InputError(f"{folder}: weights are missing: {some_of(missing)}; get the whole checkpoint of this model")
    unknown = {name for name in report["unexpected_keys"] if not name.endswith(TABLES)}
    if left_out is not None:
        unknown, model.config.num_hidden_layers = {name for name in unknown if left_out not in name}, count
    if unknown:
        raise InputError(
            f"{folder}: weights that a model of type {model.config.model_type!r} with this config.json would leave "
            f"out: {some_of(unknown)}"
        )
    return model


def some_of(names: Iterable[str]) -> str:
    """Names in a line: the first few in order, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return ", ".join(ordered[:NAMED]) + more


def _shards(index: Path) -> list[Path]:
    content = read_json(index)
    try:
        shards = [index.parent / name for name in sorted(set(content["weight_map"].values()))]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index}: not an index of shards; expected a weight_map of tensors to files") from error
    for shard in shards:
        if not shard.is_file():
            raise InputError(f"{index}: the shard {shard.name} is not there; get the whole checkpoint of this model")
    return shards
