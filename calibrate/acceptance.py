"""Acceptance on calibration prompts: the real drafter against the target's own text, and fits of the lengths."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from engine.decoding.draft import Drafter
from engine.decoding.greedy import path_in_text
from engine.node.drafts import contents_of
from engine.replayed.targets import Continuation
from fleet.acceptance.fits import (
    fit_beta_geometric,
    fit_geometric,
    mean_interval,
    total_variation,
)

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


def describe_acceptance(sessions: Sequence[Sequence[int]], depth: int) -> dict[str, Any]:
    """Fit one beta and the beta-geometric model to accepted lengths, and compare both with the measured distribution.

    - `sessions[i]` (tokens): accepted lengths of the rounds of prompt i, at `depth`.
    """
    lengths = np.concatenate([np.array(session) for session in sessions])
    one, many = fit_geometric(lengths, depth), fit_beta_geometric(lengths, depth)
    mean = mean_interval(sessions)
    return {
        "rounds": len(lengths),
        "mean": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "geometric": msgspec.to_builtins(one) | {"total_variation": total_variation(one, lengths, depth)},
        "beta_geometric": msgspec.to_builtins(many) | {"total_variation": total_variation(many, lengths, depth)},
    }
