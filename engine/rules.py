"""Lossless verification of draft chains, and drawing tokens, on the host in float64. Without torch.

Source: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1.
"""

import numpy as np


def verify_greedy(drafted: list[int], choices: list[int]) -> tuple[int, int]:
    """Accept the longest prefix of `drafted` (d) that equals the target's `choices` (d + 1).

    Return the accepted length and the target's own next token: a correction, or the bonus token.
    """
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == choices[accepted]:
        accepted += 1
    return accepted, choices[accepted]


def acceptance_probabilities(drafted: list[int], q: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return min(1, p(x) / q(x)) for each draft token x ~ q. Shapes: (d,), q (d, vocabulary), p (d + 1, vocabulary)."""
    positions = np.arange(len(drafted))
    return np.minimum(1.0, p[positions, drafted] / q[positions, drafted])


def residual(q: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return norm(max(0, p - q)): what the target owes after a rejection. Shapes: (vocabulary,).

    Where p equals q nothing is ever rejected; p itself is returned then.
    """
    excess = np.maximum(0.0, p - q)
    total = excess.sum()
    return excess / total if total > 0 else p


def verify_sampled(drafted: list[int], q: np.ndarray, p: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Accept draft tokens one by one with min(1, p/q); return the accepted length and the target's own next token.

    The result follows the target's distribution p exactly. Shapes as in `acceptance_probabilities`.
    """
    for position, chance in enumerate(acceptance_probabilities(drafted, q, p)):
        if rng.random() >= chance:
            return position, draw(residual(q[position], p[position]), rng)
    return len(drafted), draw(p[len(drafted)], rng)


def rounded(distribution: np.ndarray) -> np.ndarray:
    """Round probabilities (vocabulary,) to the float16 weights that go over the wire."""
    return distribution.astype(np.float16)


def normalised(weights: np.ndarray) -> np.ndarray:
    """Turn float16 weights (..., vocabulary) into float64 probabilities: the draft's true distribution on both ends."""
    exact = weights.astype(np.float64)
    return exact / exact.sum(axis=-1, keepdims=True)


def draw(weights: np.ndarray, rng: np.random.Generator) -> int:
    """Draw a token id from non-negative weights (vocabulary,), by inverting their cumulative sum."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    position = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return min(position, int(np.flatnonzero(weights)[-1]))
