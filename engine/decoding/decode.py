"""Decode a text in one process, without speculation."""

from collections.abc import Sequence

from specfleet.engine.decoding.sampling import GREEDY, Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.errors import InputError

TAG = 0


def decode_plain(
    target: Target, prompt: list[int], new_tokens: int, sampling: Sampling = GREEDY, seed: int = 0
) -> list[int]:
    """Return `new_tokens` token ids by plain decoding after `prompt`."""
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
