"""Stories for replayed targets: what the target says after each prompt, decoded once and kept in a file."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from engine.models import CausalLM, folder_of, load_model
from engine.prompts import prompts_of
from engine.replayed import Story
from engine.verify import Target
from specfleet.errors import InputError
from specfleet.scenario import Scenario

BATCH = 16  # prompts decoded side by side


def stories_of(scenario: Scenario, cache_folder: Path) -> list[Story]:
    """Return prompt and greedy continuation of every request, long enough for the last round to overshoot.

    Decoded continuations are kept in `cache_folder`, by a digest of the weights, the prompts and the precision.
    """
    if scenario.workload.temperature > 0:
        raise InputError(
            f"workload.temperature = {scenario.workload.temperature} with verifiers.kind = 'replayed': a replayed "
            "target knows one greedy continuation; allowed: 0, or verifiers.kind = 'real'"
        )
    prompts = prompts_of(scenario)
    distinct = list({tuple(prompt): None for prompt in prompts})
    tokens = scenario.workload.new_tokens + scenario.drafters.depth + 1
    weights = folder_of(scenario.verifiers.model, "target") / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes() if weights.is_file() else str(weights).encode())
    digest.update(json.dumps([distinct, scenario.precision]).encode())
    file = cache_folder / f"stories-{digest.hexdigest()[:16]}.json"
    kept = json.loads(file.read_text()) if file.is_file() else []
    if not kept or len(kept[0]) < tokens:
        model = load_model(scenario.verifiers.model, "target", scenario.precision)
        kept = continue_greedily(model, distinct, tokens)
        cache_folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept))
    told = dict(zip(distinct, kept, strict=True))
    return [Story(prompt, told[tuple(prompt)]) for prompt in prompts]


def continue_greedily(model: CausalLM, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Return `tokens` greedy token ids after each of the equally long `prompts`."""
    continuations = []
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        tags = range(len(batch))
        target = Target(model, cache=model.new_cache(len(batch), len(batch[0]) + tokens))
        for tag in tags:
            target.open(tag, list(batch[tag]))
        for _ in range(tokens):
            target.decode(tags)
        continuations += [target.committed(tag)[len(batch[tag]) :] for tag in tags]
    return continuations
