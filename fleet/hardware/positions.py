"""The longest text of a model: its positions by its config.json, scaled as in vLLM, against a workload's texts."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from specfleet.fleet.errors import ContextError, InputError
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.times.profile import POSITIONS, HardwareProfile

LAYER = "transformer_layer_config"  # the sizes of a head in the format of speculators
NESTED = ("text_config", LAYER)  # tables of a config.json with the sizes of the language model
KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")
STATED = ("default", "llama3", "longrope", "su", "mrope", "proportional")  # scalings within the stated positions
RAISING = ("linear", "dynamic", "yarn", "deepseek_yarn", "ntk")  # whose factor raises them; of yarn the original ones
MAX_POSITIONS = 10**9


def positions_in(content: Mapping[str, Any], kind: str, origin: str) -> int:
    """Return the longest text in tokens, by the table of the language model; 0 if the config.json says nothing.

    `kind`: its model type; a gemma3 states the positions with its scaling. Raises InputError, which begins with
    `origin`, for a scaling that is not known.
    """
    content = next((table for name in NESTED if isinstance(table := content.get(name), Mapping)), content)
    key = next((key for key in KEYS if content.get(key) is not None), "")
    if not key:
        return 0
    stated = content[key]
    if type(stated) is not int or not 1 <= stated <= MAX_POSITIONS:
        raise InputError(f"{origin}: {key} = {shortened(stated)}; needs a whole number from 1 to {MAX_POSITIONS}")
    name = "rope_scaling" if content.get("rope_scaling") else "rope_parameters"
    given = content.get(name) or {}
    if not isinstance(given, Mapping):
        raise InputError(f"{origin}: {name} = {shortened(given)}; needs a table")
    ropes = [rope for rope in given.values() if isinstance(rope, Mapping)] or [given]  # of kinds of layers, or of all
    return max(_scaled(stated, rope, f"{origin}: {name}") for rope in ropes) if "gemma3" not in kind else stated


def _scaled(stated: int, rope: Mapping[str, Any], origin: str) -> int:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in STATED:
        return stated
    if kind not in RAISING:
        raise InputError(f"{origin}.rope_type = {shortened(kind)}; allowed: {', '.join((*STATED, *RAISING))}")
    factor = rope.get("factor", 1)
    base = rope.get("original_max_position_embeddings", stated) if "yarn" in kind else stated
    numbers = type(base) is int and type(factor) in (int, float)
    if not numbers or not (1 <= factor < MAX_POSITIONS and base >= 1 and base * factor <= MAX_POSITIONS):
        raise InputError(f"{origin}: factor = {shortened(factor)} of {shortened(base)} positions; allowed: from 1 on")
    return int(base * factor)


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
                "name a model for longer texts, or the folder of a checkpoint that has more positions"
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


def drafting_on(profile: HardwareProfile, mean: float, longest: float) -> tuple[HardwareProfile, list[str]]:
    """Return a profile without the positions of a drafter that the mean text keeps and the longest leaves, and notes.

    Engines serve such texts: vLLM's V1 runner drafts nothing in a step that has one (its #24662), V2 drafts on.
    """
    role, known = f"{POSITIONS} drafter ", profile.provenance
    past = {key: int(most) for key, most in known.items() if key.startswith(role) and mean <= int(most) < longest}
    says = f"positions by its config, and texts here have up to {longest:.0f} tokens: it drafts on (assumed; vLLM's V1"
    notes = [f"{key.removeprefix(role)} has {past[key]} {says} runner skips such steps)" for key in past if past[key]]
    kept = {key: most for key, most in known.items() if key not in past}
    return msgspec.structs.replace(profile, provenance=kept), notes
