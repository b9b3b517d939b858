"""Sizes of messages: tokens, parents of a tree's nodes, and distributions of inner nodes."""

import msgspec
import pytest

from specfleet.fleet.policies.shapes import CHAIN, Shape, depths_of, dynamic, parents, tree
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave
from specfleet.fleet.stations.payload import ENVELOPE_BYTES, payload_bytes

VOCABULARY = 1000


@pytest.mark.parametrize("shape", [CHAIN, tree(2), tree(3, 1, 2)])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_sampled_drafts_carry_distributions_of_inner_nodes(shape: Shape, depth: int) -> None:
    """Two bytes a probability, and one byte in all for the rule; the root is the first of those nodes."""
    of_node = parents(shape.children(depth))
    token_bytes = 4 if shape.kind == "chain" else 8
    greedy = ENVELOPE_BYTES[Draft] + token_bytes * len(of_node)
    draft = Draft(1, 100, 100, 1000, depth)
    assert payload_bytes(draft, 0.0, VOCABULARY, shape) == greedy
    assert payload_bytes(draft, 0.7, VOCABULARY, shape) == greedy + 2 * VOCABULARY * len(set(of_node)) + 1


def test_empty_drafts_are_only_an_envelope() -> None:
    for shape in (CHAIN, tree(2), dynamic(2, 5)):
        assert payload_bytes(Draft(1, 100, 100, 1000, 0), 0.7, VOCABULARY, shape) == ENVELOPE_BYTES[Draft]
    grown = payload_bytes(Draft(1, 100, 100, 1000, 3), 0.7, VOCABULARY, dynamic(2, 5))
    assert grown == ENVELOPE_BYTES[Draft] + 5 * 8


def test_openings_carry_the_prefix_later_requests_one_token() -> None:
    opening, later = (DraftRequest(1, 100, 100, 1000, opening=opening) for opening in (True, False))
    envelope = ENVELOPE_BYTES[DraftRequest]
    assert payload_bytes(opening, 0.0, VOCABULARY) == envelope + 4000
    assert payload_bytes(later, 0.0, VOCABULARY) == envelope + 4
    assert payload_bytes(later, 0.0, VOCABULARY, hidden_numbers=2.5) == envelope + 4 + 5
    leave = Leave(1, 100)
    assert payload_bytes(leave, 0.0, VOCABULARY) == len(msgspec.msgpack.encode(leave))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(leave), type=Leave) == leave


def test_typical_envelopes_match_sent_messages() -> None:
    """Numbers above 127 take a byte or two more; none is far from the typical one."""
    for kind, message in ((Draft, Draft(3, 200, 150, 900, 7)), (DraftRequest, DraftRequest(3, 200, 150, 900))):
        assert abs(len(msgspec.msgpack.encode(message)) - ENVELOPE_BYTES[kind]) <= 4


def test_nodes_of_a_tree_stand_one_level_below_their_parents() -> None:
    assert depths_of(parents([2, 1, 2])) == [1, 1, 2, 2, 3, 3, 3, 3]
    assert depths_of([0, 0, 2, 3, 1]) == [1, 1, 2, 3, 2]
    assert depths_of([]) == []
