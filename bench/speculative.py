"""Decode texts in one process, plainly and speculatively: drafter and target are on the same device."""

from collections.abc import Sequence

from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.sampling import GREEDY, Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import reach

TAG = 0


def decode_plain(
    target: Target, prompt: list[int], new_tokens: int, sampling: Sampling = GREEDY, seed: int = 0
) -> list[int]:
    """Return `new_tokens` token ids after `prompt` by plain decoding."""
    check_text(target, prompt, new_tokens)
    target.open(TAG, prompt, sampling, seed, room=len(prompt) + new_tokens)
    try:
        for _ in range(new_tokens):
            target.decode([TAG])
        return target.committed(TAG)[len(prompt) :]
    finally:
        target.release(TAG)


def check_text(target: Target, prompt: Sequence[int], new_tokens: int) -> None:
    """Raise InputError for an empty prompt, and for a text beyond the model's positions."""
    if not prompt:
        raise InputError("prompt: needs a token or more")
    target.model.check_reach(len(prompt) + new_tokens)


def decode_speculatively(
    target: Target,
    drafter: Drafter,
    prompt: list[int],
    new_tokens: int,
    depth: int,
    sampling: Sampling = GREEDY,
    seed: int = 0,
) -> tuple[list[int], list[int]]:
    """Return as many token ids after `prompt` as `decode_plain`, and the accepted length of every round."""
    texts, accepted_lengths = decode_batch(target, drafter, [prompt], new_tokens, depth, sampling, seed)
    return texts[0], accepted_lengths


def decode_batch(
    target: Target,
    drafter: Drafter,
    prompts: Sequence[list[int]],
    new_tokens: int,
    depth: int,
    sampling: Sampling = GREEDY,
    seed: int = 0,
) -> tuple[list[list[int]], list[int]]:
    """Decode after all prompts side by side, one row each; finished rows leave and the others go on.

    Returns `new_tokens` token ids after each prompt, and the accepted lengths of all rounds of all rows.
    """
    for prompt in prompts:
        check_text(target, prompt, new_tokens)
    opened: list[int] = []
    texts: dict[int, list[int]] = {}
    accepted_lengths: list[int] = []
    try:
        for tag, prompt in enumerate(prompts):
            room = len(prompt) + new_tokens + drafter.shape.room(depth)
            target.open(tag, prompt, sampling, seed, room)
            opened.append(tag)
            first = target.prefill(tag)
            drafter.open(tag, [*prompt, first.token], sampling, seed + 1, room)
            drafter.read(tag, hidden=first.hidden)
        while True:
            for tag in list(target.streams):
                text = target.committed(tag)[len(prompts[tag]) :]
                if len(text) >= new_tokens:
                    texts[tag] = text[:new_tokens]
                    target.release(tag)
                    drafter.release(tag)
            if not target.streams:
                return [texts[tag] for tag in opened], accepted_lengths
            tags = target.cache.in_order(list(target.streams))
            levels = [reach(depth, len(target.committed(tag)), positions_of(target, drafter)) for tag in tags]
            for tag, verdict in zip(tags, target.verify(tags, drafter.draft(tags, levels)), strict=True):
                hidden = verdict.committed_hidden if drafter.reads_hidden else None
                drafter.advance(tag, verdict.path, verdict.tokens, hidden)
                accepted_lengths.append(verdict.accepted)
    finally:
        for tag in opened:
            target.release(tag)
            drafter.release(tag)


def positions_of(target: Target, drafter: Drafter) -> int:
    """Return the maximum positions of both models; 0 for no limit."""
    models = [target.model, *([drafter.model] if isinstance(drafter, Drafter) else [])]
    return min((model.positions for model in models if model.positions), default=0)
