"""Continuations for replayed targets: the target's greedy text after each prompt, decoded once and kept in a file."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from engine.decoding.checkpoints import weight_files
from engine.decoding.models import CausalLM, folder_of, load_model
from engine.decoding.verify import Target
from engine.net.content import states_sent
from engine.node.build import head_taps
from engine.node.prompts import prompts_of
from engine.replayed.targets import Continuation
from fleet.errors import InputError
from fleet.files import write_file
from fleet.scenario.resolved import Fleet

BATCH = 16  # prompts decoded side by side


def continuations_of(fleet: Fleet, cache_folder: Path) -> list[Continuation]:
    """Return the greedy continuation of every request's prompt, long enough for the last round.

    They are kept in `cache_folder`, by a digest of the weights, the prompts and the precision. If the drafter reads
    hidden states, these are included, and their layers are part of the digest. InputError for a scenario that samples.
    """
    if fleet.workload.temperature > 0:
        raise InputError(
            f"workload.temperature = {fleet.workload.temperature} with verifiers.kind = 'replayed': a replayed "
            "target has one greedy continuation; allowed: 0, or verifiers.kind = 'real'"
        )
    prompts = prompts_of(fleet)
    distinct = list({tuple(prompt): None for prompt in prompts})
    tokens = fleet.workload.new_tokens + fleet.drafters.depth + 1
    folder, taps = folder_of(fleet.verifiers.model, "target"), head_taps(fleet)
    digest = hashlib.sha256()
    for file in [folder / "config.json", *weight_files(folder)]:
        digest.update(file.read_bytes())
    digest.update(json.dumps([distinct, fleet.precision, *taps]).encode())
    file = cache_folder / f"continuations-{digest.hexdigest()[:16]}.npz"
    with_hidden = fleet.drafters.kind == "eagle"
    kept = dict(np.load(file)) if file.is_file() else {}
    if not kept or kept["continuations"].shape[1] < tokens or (with_hidden and "hidden" not in kept):
        model = load_model(fleet.verifiers.model, "target", fleet.precision)
        kept = continue_greedily(model, distinct, tokens, with_hidden, taps)
        content = io.BytesIO()
        np.savez(content, **kept)
        write_file(file, content.getvalue())
    number = {prompt: i for i, prompt in enumerate(distinct)}
    continuations = kept["continuations"].tolist()
    return [
        Continuation(prompt, continuations[i], kept["hidden"][i] if with_hidden else None)
        for prompt, i in ((prompt, number[tuple(prompt)]) for prompt in prompts)
    ]


def continue_greedily(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    with_hidden: bool = False,
    taps: Sequence[int] = (),
) -> dict[str, np.ndarray]:
    """Return `continuations` (prompts, tokens): greedy token ids after each of the equally long `prompts`.

    `with_hidden`: also `hidden` (prompts, prompt and continuation tokens - 1, hidden), float16 last hidden states, or
    inputs of the layers `taps`.
    """
    continuations, hidden = [], []
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        tags = range(len(batch))
        target = Target(model, cache=model.new_cache(len(batch), len(batch[0]) + tokens), taps=taps)
        for tag in tags:
            target.open(tag, list(batch[tag]))
        rounds = [target.decode(tags) for _ in range(tokens)]
        continuations += [target.committed(tag)[len(batch[tag]) :] for tag in tags]
        if with_hidden:
            of_rows = zip(*rounds, strict=True)  # a row's verdicts in order
            hidden += [
                states_sent(torch.cat([verdict.hidden for verdict in row]).float().cpu().numpy()) for row in of_rows
            ]
    decoded = {"continuations": np.array(continuations)}
    return decoded | {"hidden": np.stack(hidden)} if with_hidden else decoded
