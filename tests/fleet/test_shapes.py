"""Shapes of drafts: their nodes, and the largest tree."""

import pytest

from fleet.policies.shapes import MOST_NODES, parents, tree


def test_a_tree_may_have_4096_nodes() -> None:
    assert MOST_NODES == 4096
    assert len(parents([64, 63])) == 64 + 64 * 63 == MOST_NODES
    assert tree(MOST_NODES).nodes(1) == MOST_NODES


@pytest.mark.parametrize("children", [[64, 64], [1, MOST_NODES], [2] * 12])
def test_a_larger_tree_is_refused(children: list[int]) -> None:
    with pytest.raises(ValueError, match=f"has more than {MOST_NODES} nodes"):
        parents(children)
