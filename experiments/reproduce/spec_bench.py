"""How long the turns of Spec-Bench are, by quantiles, and request files made of them.

Quantiles of the 560 turns of its 480 conversations (question.jsonl of the benchmark's authors), in tokens of four
characters each, as `workload.conversations` counts them; no turn holds the conversation before it.
"""

from pathlib import Path

import numpy as np

from fleet.files import write_file

TURNS = 560
QUANTILES = (4, 10, 12, 14, 17, 21, 24, 29, 34, 41, 47, 54, 63, 80, 177, 543, 736, 764, 802, 889, 1712)
"""Lengths in tokens at the levels 0, 0.05, ... 1."""


def turn_tokens() -> list[int]:
    """Return lengths of as many turns, in tokens, shortest first: evenly over the levels, linear between quantiles."""
    levels = (np.arange(TURNS) + 0.5) / TURNS
    lengths: list[int] = np.interp(levels, np.linspace(0, 1, len(QUANTILES)), QUANTILES).round().astype(int).tolist()
    return lengths


def write_lengths(path: Path, requests: int, answers: tuple[int, int], seed: int) -> None:
    """Write a file for `workload.lengths`: turns in a random order, answers spread evenly over a range of tokens."""
    rng = np.random.default_rng(seed)
    prompts = np.resize(rng.permutation(turn_tokens()), requests)
    lengths = zip(prompts, rng.integers(answers[0], answers[1] + 1, size=requests), strict=True)
    rows = "".join(f"{prompt},{answer}\n" for prompt, answer in lengths)
    write_file(path, f"num_prefill_tokens,num_decode_tokens\n{rows}".encode())
