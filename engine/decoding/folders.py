"""Files of a model's folder beside its weights, with one-line errors for unreadable ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.shape import MAX_LAYERS
from specfleet.fleet.inputs.text import read_json, reason, shortened

LAYERS_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")  # by the types of models


def read_config(folder: Path) -> PretrainedConfig:
    """Return the configuration of a folder's model; InputError if transformers does not know it."""
    path = folder / "config.json"
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: needs a JSON object; holds {shortened(content)}")
    check_layers(path, content)
    with explained(path, "not the configuration of a model that transformers knows"):
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def check_layers(path: Path, content: Mapping[str, Any]) -> None:
    """Raise InputError for more layers than any model has, which transformers would make one by one."""
    for table in (content, *(part for part in content.values() if isinstance(part, dict))):
        for key in LAYERS_KEYS:
            if isinstance(layers := table.get(key), int | float) and not 0 <= layers <= MAX_LAYERS:
                raise InputError(f"{path}: {key} = {shortened(layers)}; allowed: up to {MAX_LAYERS}")


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer beside a model; InputError if there is none, or it cannot be read."""
    with explained(folder, "no tokenizer can be read from it"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn any error while a library reads a user's file into an InputError that names the file.

    transformers, safetensors and torch read such files, and document no common error.
    """
    try:
        yield
    except (InputError, OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(f"{path}: {what} ({type(error).__name__}: {reason(error)})") from error
