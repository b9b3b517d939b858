"""Recorded texts for tests of acceptance by place, and the plain loop over their places as the reference."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st

repeatable = settings(max_examples=40)


def texts_of(depth: int) -> st.SearchStrategy[list[list[int]]]:
    """Some texts, each with the accepted draft tokens of its places, from 0 to `depth`."""
    return st.lists(st.lists(st.integers(0, depth), min_size=1, max_size=30), min_size=1, max_size=5)


def tokens_and_steps(text: Sequence[int], depth: int) -> tuple[int, int]:
    """Return the tokens and steps of a text with drafts of `depth` tokens, each step after the end of the last."""
    place = tokens = steps = 0
    while place < len(text):
        emitted = min(text[place], depth) + 1
        place, tokens, steps = place + emitted, tokens + emitted, steps + 1
    return tokens, steps
