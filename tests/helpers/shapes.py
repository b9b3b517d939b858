"""Shapes of drafts in few words."""

from specfleet.fleet.policies.shapes import Shape


def tree(*branching: int) -> Shape:
    """A static tree with so many children of each node by level."""
    return Shape("tree", branching)
