"""Decode one stream in one process: plain, and speculatively with drafter and target on the same device."""

from engine.draft import Drafter
from engine.verify import Target

TAG = 0


def decode_plain(target: Target, prompt: list[int], new_tokens: int, seed: int = 0) -> list[int]:
    """Return `new_tokens` token ids by plain autoregressive decoding after `prompt`."""
    target.open(TAG, prompt, seed)
    for _ in range(new_tokens):
        target.decode(TAG)
    tokens = target.committed(TAG)[len(prompt) :]
    target.release(TAG)
    return tokens


def decode_speculatively(
    target: Target, drafter: Drafter, prompt: list[int], new_tokens: int, depth: int, seed: int = 0
) -> tuple[list[int], list[int]]:
    """Return `new_tokens` token ids after `prompt`, and the accepted length of every round."""
    target.open(TAG, prompt, seed)
    token = target.decode(TAG)
    drafter.open(TAG, [*prompt, token], seed + 1)
    drafter.prefill(TAG)
    accepted_lengths = []
    committed = target.committed(TAG)
    while len(committed) < len(prompt) + new_tokens:
        draft = drafter.draft(TAG, depth)
        accepted, token = target.verify(TAG, draft.tokens, draft.distributions)
        drafter.advance(TAG, len(committed), token)
        accepted_lengths.append(accepted)
    tokens = committed[len(prompt) : len(prompt) + new_tokens]
    target.release(TAG)
    drafter.release(TAG)
    return tokens, accepted_lengths
