"""Folders of models, and their files beside the weights, with one-line errors for unreadable ones.

torch and transformers are imported on their use: a client of another server does without.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.shape import MAX_LAYERS
from specfleet.fleet.inputs.text import is_file, read_json, reason, shortened

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

DEMO_PAIR = Path(__file__).parents[1] / "demo_pair"
LAYERS_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")  # by the types of models


def folder_of(name: str, role: str, key: str = "") -> Path:
    """Return the folder of a model: a path, or "demo" for the demo pair's `role` (drafter, block or target).

    `key`: that names it, in errors; by default the side's `model`.
    """
    folder = named_folder(name, role)
    if not is_folder_of_model(name, role):
        key = key or ("verifiers.model" if role == "target" else "drafters.model")
        raise InputError(f"{key} = {name!r}: {folder} holds no config.json; give a Hugging Face folder, or 'demo'")
    return folder


def is_folder_of_model(name: str, role: str) -> bool:
    """Whether a model is on this host."""
    return is_file(named_folder(name, role) / "config.json")


def named_folder(name: str, role: str) -> Path:
    """Return the folder that a model's name means, be it there or not."""
    return DEMO_PAIR / role if name == "demo" else Path(name)


def read_vocabulary(folder: Path) -> int:
    """Return the size of the vocabulary of a folder's model."""
    content = read_json(folder / "config.json")
    stated = content.get("vocab_size") if isinstance(content, dict) else None
    return stated if isinstance(stated, int) else int(read_config(folder).vocab_size)


def read_config(folder: Path) -> "PretrainedConfig":
    """Return the configuration of a folder's model; InputError if transformers does not know it."""
    from transformers import AutoConfig

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


def read_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Return the tokenizer beside a model; InputError if there is none, or it cannot be read."""
    from transformers import AutoTokenizer

    with explained(folder, "no tokenizer can be read from it"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn any error while a library reads a user's file into an InputError that names the file.

    transformers, safetensors and torch read such files, and document no common error.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's
            raise
        raise InputError(f"{path}: {what} ({type(error).__name__}: {reason(error)})") from error
