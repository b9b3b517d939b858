"""How far a draft may reach where models know positions only up to a number that they have learned."""


def reach(depth: int, base: int, positions: int) -> int:
    """Return how many of the `depth` levels asked for a draft after the first `base` tokens of a text may have.

    `positions`: places of a text that the models know, from its first token on; 0 for any number. A node of level j
    stands j places behind the newest committed token.
    """
    return max(min(depth, positions - base), 0) if positions else depth
