"""Acceptance on calibration prompts: the real drafter against the target's own text."""

import torch

from engine.decoding.draft import Drafter
from engine.decoding.greedy import path_in_text
from engine.node.packing import contents_of
from engine.replayed.answers import Continuation

TAG = 0


def accepted_lengths(drafter: Drafter, continuation: Continuation, new_tokens: int, depth: int) -> list[int]:
    """Return the accepted length of every greedy round while `new_tokens` are decoded after the prompt."""
    drafter.open(TAG, [*continuation.prompt, continuation.tokens[0]])
    hidden, prompt_tokens = None, len(continuation.prompt)
    if continuation.hidden is not None:
        hidden = torch.from_numpy(continuation.hidden).to(drafter.model.device, drafter.model.dtype)
    drafter.prefill(TAG, hidden=None if hidden is None else hidden[:prompt_tokens])
    lengths, committed = [], 1
    while committed < new_tokens:
        draft = contents_of(drafter.draft([TAG], [depth]))[0]
        path = path_in_text(draft.tokens, continuation.tokens[committed:], draft.nodes)
        before, committed = committed, committed + len(path) + 1
        states = None if hidden is None else hidden[prompt_tokens + before - 1 : prompt_tokens + committed - 1]
        drafter.advance(TAG, path, continuation.tokens[before:committed], states)
        lengths.append(len(path))
    drafter.release(TAG)
    return lengths
