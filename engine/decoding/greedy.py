"""Greedy verification on the host: follow the target's choices down the draft. Without torch."""

from collections.abc import Sequence

from specfleet.fleet.policies.shapes import depths_of


def longest_path(
    tokens: Sequence[int], choices: Sequence[int], parents: Sequence[int] | None = None
) -> tuple[list[int], int]:
    """Return the accepted nodes from the root on, and the target's own next token: a correction, or the bonus token.

    - `tokens` (n): of nodes 1 .. n.
    - `choices` (n + 1): the target's best token at the root, 0, and at every node.
    - `parents` (n): of nodes 1 .. n, each below its child's number; None for a chain.
    """
    path: list[int] = []
    node = 0
    for number, token in enumerate(tokens, start=1):
        parent = number - 1 if parents is None else parents[number - 1]
        if parent == node and token == choices[node]:
            node = number
            path.append(node)
        elif parents is None:
            break
    return path, choices[node]


def path_in_text(tokens: Sequence[int], text: Sequence[int], parents: Sequence[int] | None = None) -> list[int]:
    """Return the accepted nodes of a draft if the target's next tokens are `text`."""
    depths = range(1, len(tokens) + 1) if parents is None else depths_of(parents)
    return longest_path(tokens, [text[0], *(text[depth] for depth in depths)], parents)[0]
