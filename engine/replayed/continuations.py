"""Continuations for replayed targets: the target's greedy text after each prompt, decoded once and kept in a file."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from specfleet.engine.decoding.checkpoints import weight_files
from specfleet.engine.decoding.folders import folder_of
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.content import states_sent
from specfleet.engine.node.build import head_taps, load_target
from specfleet.engine.node.prompts import prompts_of, targets_of
from specfleet.engine.replayed.targets import Continuation
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.scenario.fingerprint import listing_digest
from specfleet.fleet.scenario.resolved import Fleet

BATCH = 16  # prompts decoded side by side

Prompt = tuple[int, ...]
Decoded = dict[str, np.ndarray]
"""`prompts` (P, tokens), their `continuations` (P, tokens), and `hidden` if it is read."""


def continuations_of(fleet: Fleet, cache_folder: Path, targets: Sequence[int] | None = None) -> list[Continuation]:
    """Return the greedy continuation of every request's prompt by its target's model, long enough for the last round.

    They are kept in `cache_folder`, prompt by prompt, in a file for each model, precision and length of prompts; only
    new prompts are decoded. If the drafter reads hidden states, these are included, and their layers choose the file,
    too. `targets`: as in `prompts_of`. InputError for a scenario that samples.
    """
    if fleet.workload.temperature > 0:
        raise InputError(
            f"workload.temperature = {fleet.workload.temperature} with verifiers.kind = 'replayed': a replayed "
            "target has one greedy continuation; allowed: 0, or verifiers.kind = 'real'"
        )
    prompts, with_hidden = [tuple(prompt) for prompt in prompts_of(fleet, targets)], fleet.drafters.kind == "eagle"
    of_models: dict[str, dict[int, int]] = {}  # targets by request
    for number, target in targets_of(fleet, targets).items():
        of_models.setdefault(fleet.target_model(target), {})[number] = target
    texts = [Continuation([], [])] * len(prompts)  # of other nodes' requests
    for own in of_models.values():
        asked = list(dict.fromkeys(prompts[number] for number in own))
        kept = decode_missing(fleet, asked, with_hidden, cache_folder, min(own.values()))
        places = {tuple(prompt): place for place, prompt in enumerate(kept["prompts"].tolist())}
        continuations = kept["continuations"].tolist()
        for number, place in ((number, places[prompts[number]]) for number in own):
            hidden = kept["hidden"][place] if with_hidden else None
            texts[number] = Continuation(list(prompts[number]), continuations[place], hidden)
    return texts


def decode_missing(
    fleet: Fleet, prompts: Sequence[Prompt], with_hidden: bool, cache_folder: Path, target: int = 0
) -> Decoded:
    """Return what the file of a target's model and these equally long prompts holds, once all of them are decoded."""
    folder, taps = folder_of(fleet.target_model(target), "target"), head_taps(fleet, target)
    weight_files(folder)  # an InputError without any
    key = json.dumps([listing_digest(folder), fleet.precision, with_hidden, *taps, len(prompts[0])])
    file = cache_folder / f"continuations-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    rule = fleet.verifiers.allocate
    tokens = fleet.workload.new_tokens + (fleet.drafters.depth if rule is None else rule.longest) + 1
    kept = dict(np.load(file)) if file.is_file() else {}
    if kept and kept["continuations"].shape[1] < tokens:
        kept = {}
    known = {tuple(prompt) for prompt in kept["prompts"].tolist()} if kept else set()
    if missing := [prompt for prompt in prompts if prompt not in known]:
        model = load_target(fleet, target)
        tokens = kept["continuations"].shape[1] if kept else tokens
        decoded = {"prompts": np.array(missing)} | continue_greedily(model, missing, tokens, with_hidden, taps)
        kept = {name: np.concatenate([kept[name], new]) for name, new in decoded.items()} if kept else decoded
        content = io.BytesIO()
        np.savez(content, **kept)
        write_file(file, content.getvalue())
    return kept


def continue_greedily(
    model: CausalLM, prompts: Sequence[Sequence[int]], tokens: int, with_hidden: bool = False, taps: Sequence[int] = ()
) -> Decoded:
    """Return `continuations` (prompts, tokens): greedy token ids after each of the equally long `prompts`.

    `with_hidden`: also `hidden` (prompts, prompt and continuation tokens - 1, hidden), float16 last hidden states, or
    inputs of the layers `taps`.
    """
    pieces = [
        _continue_batch(model, prompts[start : start + BATCH], tokens, with_hidden, taps)
        for start in range(0, len(prompts), BATCH)
    ]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _continue_batch(
    model: CausalLM, batch: Sequence[Sequence[int]], tokens: int, with_hidden: bool, taps: Sequence[int]
) -> Decoded:
    """Continue prompts side by side; the cache of one batch is free before the next one's is allocated."""
    tags = range(len(batch))
    target = Target(model, cache=model.new_cache(len(batch), len(batch[0]) + tokens), taps=taps)
    for tag in tags:
        target.open(tag, list(batch[tag]))
    rounds = [target.decode(tags) for _ in range(tokens)]
    decoded = {"continuations": np.array([target.committed(tag)[len(batch[tag]) :] for tag in tags])}
    if not with_hidden:
        return decoded
    of_rows = zip(*rounds, strict=True)  # a row's verdicts in order
    hidden = [states_sent(torch.cat([verdict.hidden for verdict in row]).float().cpu().numpy()) for row in of_rows]
    return decoded | {"hidden": np.stack(hidden)}
