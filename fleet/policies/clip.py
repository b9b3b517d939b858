"""Limits drafts to the positions that a model has learned."""


def reach(depth: int, base: int, positions: int) -> int:
    """Return how many of `depth` levels a draft after `base` tokens may have.

    - `positions`: learned positions of the models; 0 for no limit. A node of level j is j positions after the newest
      committed token.
    """
    return max(min(depth, positions - base), 0) if positions else depth
