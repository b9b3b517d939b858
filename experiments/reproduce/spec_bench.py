"""How long the turns of Spec-Bench are, by quantiles, how long answers are, and request files made of both.

Quantiles of the 560 turns of its 480 conversations (question.jsonl of the benchmark's authors), in tokens of four
characters each, as `workload.conversations` counts them; no turn holds the conversation before it.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleet.files import write_file

TURNS = 560
QUANTILES = (4, 10, 12, 14, 17, 21, 24, 29, 34, 41, 47, 54, 63, 80, 177, 543, 736, 764, 802, 889, 1712)
"""Lengths in tokens at the levels 0, 0.05, ... 1."""


class Answers(NamedTuple):
    """Quantiles of the answers' lengths: levels from 0 to 1, and tokens at each; linear between."""

    levels: tuple[float, ...]
    tokens: tuple[float, ...]


def turn_tokens(most: int) -> list[int]:
    """Return lengths of as many turns, in tokens, shortest first: evenly over the levels, linear between quantiles.

    Those of more than `most` tokens are cut there.
    """
    lengths = np.interp(evenly(TURNS), np.linspace(0, 1, len(QUANTILES)), QUANTILES).round().astype(int)
    cut: list[int] = np.minimum(lengths, most).tolist()
    return cut


def write_lengths(path: Path, requests: int, answers: Answers, seed: int, most: int) -> None:
    """Write a file for `workload.lengths`: turns of at most `most` tokens and answers, each in a random order."""
    rng = np.random.default_rng(seed)
    prompts = np.resize(rng.permutation(turn_tokens(most)), requests)
    lengths = np.interp(rng.permutation(evenly(requests)), answers.levels, answers.tokens).round().astype(int)
    pairs = zip(prompts, np.maximum(lengths, 1), strict=True)
    rows = "".join(f"{prompt},{answer}\n" for prompt, answer in pairs)
    write_file(path, f"num_prefill_tokens,num_decode_tokens\n{rows}".encode())


def evenly(number: int) -> Any:
    """Return that many levels between 0 and 1, in the middle of as many equal parts; an array of floats."""
    return (np.arange(number) + 0.5) / number
