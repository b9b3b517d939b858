"""The longest text of a workload against the positions of the models that read it."""

from collections.abc import Iterable, Mapping

from specfleet.fleet.errors import ContextError
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.times.profile import POSITIONS, HardwareProfile


def check_context(positions: Mapping[str, int], text: int, depth: int) -> None:
    """Raise ContextError if the longest text and its draft exceed the positions of a model.

    - `positions`: tokens of the longest text of each model, by name; 0 if unknown.
    - `text`, `depth`: tokens of the longest prompt with its answer, and of a draft beyond it.
    """
    for model, known in positions.items():
        if 0 < known < text + depth:
            raise ContextError(
                f"{model} has {known} positions (max_position_embeddings), and the longest prompt with its answer has "
                f"{text} tokens, with a draft {text + depth}; lower workload.prompt_tokens or workload.new_tokens, or "
                "name a model for longer texts"
            )


def positions_of(profiles: Iterable[HardwareProfile], drafts: bool) -> dict[str, int]:
    """Return the positions of the models that estimated profiles are of, by name; `drafts`: those of drafters, too."""
    prefixes = [f"{POSITIONS} {role} " for role in (("target", "drafter") if drafts else ("target",))]
    return {
        shortened(key.removeprefix(prefix), quoted=False): int(text[:12])
        for prefix in prefixes
        for profile in profiles
        for key, text in profile.provenance.items()
        if key.startswith(prefix) and text.isdecimal()
    }
