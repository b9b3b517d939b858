"""Distributions over the vocabulary: from logits, to the wire, to a drawn token. All on the host, in float64."""

import numpy as np
import torch


def probabilities(logits: torch.Tensor, temperature: float) -> np.ndarray:
    """Softmax of `logits` (positions, vocabulary) at `temperature` > 0, as float64 of the same shape."""
    return torch.softmax(logits.double() / temperature, dim=-1).cpu().numpy()


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
