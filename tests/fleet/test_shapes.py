"""Shapes of drafts: their nodes, and the largest tree."""

import pytest

from specfleet.fleet.policies.shapes import CHAIN, MAX_NODES, parents, tree


def test_a_tree_may_have_4096_nodes() -> None:
    assert len(parents([64, 63])) == 64 + 64 * 63 == MAX_NODES
    assert tree(MAX_NODES).nodes(1) == MAX_NODES


@pytest.mark.parametrize("children", [[64, 64], [1, MAX_NODES], [2] * 12])
def test_a_larger_tree_is_refused(children: list[int]) -> None:
    with pytest.raises(ValueError, match=f"has more than {MAX_NODES} nodes"):
        parents(children)


def test_a_row_has_room_for_the_overshoot_of_a_round_and_the_draft_beyond() -> None:
    assert CHAIN.room(5) == 5 + 5 + 2
    assert tree(3).room(2) == tree(3).nodes(2) + 2 + 2
