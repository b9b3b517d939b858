"""What a model's folder holds besides weights, and what becomes of whatever cannot be read in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import OutOfMemoryError
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from fleet.errors import InputError
from fleet.inputs.text import read_json, reason, shortened


def read_config(folder: Path) -> PretrainedConfig:
    """Return the configuration of a folder's model; InputError where it is none that transformers knows."""
    path = folder / "config.json"
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: needs a JSON object; holds {shortened(content)}")
    with explained(path, "not the configuration of a model that transformers knows"):
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer beside a model; InputError where there is none, or it cannot be read."""
    with explained(folder, "no tokenizer can be read from it"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a library raises while it reads a file of the user's into an InputError that names the file.

    Such files are read by transformers, safetensors and torch, which raise what they like.
    """
    try:
        yield
    except (InputError, OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(f"{path}: {what} ({type(error).__name__}: {reason(error)})") from error
