"""Words that engines and users have for drafters."""

from collections.abc import Sequence
from pathlib import Path

from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import misfit
from specfleet.fleet.hardware.shipped import shape_of, shipped_name

MTP = "mtp"
METHODS = ("eagle", "eagle3", "dflash", "dspark", "pard", "peagle")
FOUND = {"lookup": "prompt lookup", "suffix": "suffix decoding"}  # drafts without a model, and their names
SYNONYMS = {"ngram": "lookup", "mtp": MTP, "deepseek_mtp": MTP, "nextn": MTP} | {name: name for name in FOUND}


def drafter_named(word: str, targets: Sequence[str]) -> str:
    """Return a drafter by its word at vLLM or SGLang, or by its kind the shipped one for a target: dflash, eagle3.

    Raises InputError for a kind of which none ships for the targets.
    """
    if (usual := SYNONYMS.get(word.casefold())) is not None:
        return usual
    plain = word.casefold().replace("-", "")
    word = plain if plain in METHODS and not Path(word).exists() else word
    models = [(target.rpartition("@")[0] or target).partition(":")[0] for target in targets]
    of_kind = [name for name in shipped_models() if name.startswith(f"{word.casefold()}-")]
    known = [name for model in models if (name := f"{word.casefold()}-{shipped_name(model)}") in of_kind]
    if known or word.casefold() not in METHODS or Path(word).exists():
        return next(iter(known), word)
    fitting = [name for name in of_kind if any(not misfit(shape_of(name), shape_of(at)) for at in models)]
    said = f"by size fits {' or '.join(fitting)}" if fitting else f"of other sizes {', '.join(of_kind) or 'none'}"
    at = " or ".join(models)
    raise InputError(f"--draft {word}: none ships for {at}, {said}; the folder or config.json of a checkpoint works")
