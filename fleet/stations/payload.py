"""Sizes of messages on the wire: the engine sends exactly these layouts, the simulator counts them.

A message is an envelope (the struct, encoded by msgspec as MessagePack) and its content: token ids of four bytes.
With sampling, each draft token adds a draft distribution of two-byte probabilities and a byte for its rule. For heads
that read them, the content includes the target's hidden states, two bytes a number.
"""

from collections.abc import Callable

import msgspec

from specfleet.fleet.policies.shapes import CHAIN, Shape
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Message

TOKEN_BYTES = 4
PROBABILITY_BYTES = HIDDEN_BYTES = 2
RULE_BYTES = 1

ENVELOPE_BYTES = {
    kind: len(msgspec.msgpack.encode(example))
    for kind, example in ((Draft, Draft(1, 100, 100, 1000, 5)), (DraftRequest, DraftRequest(1, 100, 100, 1000)))
}


def payload_bytes(
    message: Message, temperature: float, vocabulary: int, shape: Shape = CHAIN, hidden_numbers: float = 0
) -> int:
    """Return the bytes on the wire, envelope and content, of a typical message of this kind.

    A tree's nodes travel with their parents; with sampling, nodes with children have distributions. An opening
    request carries the whole prefix, a later one only the target's own token, since the drafter proposed the accepted
    ones.

    - `hidden_numbers`: numbers of all hidden states in a request.
    """
    if type(message) is Draft:
        nodes, is_chain = shape.nodes(message.tokens), shape.kind == "chain"
        inner = nodes if is_chain else shape.nodes(message.tokens - 1) + 1 if nodes and shape.kind == "tree" else 0
        weights = PROBABILITY_BYTES * vocabulary * inner + RULE_BYTES * (inner > 0) if temperature > 0 else 0
        return ENVELOPE_BYTES[Draft] + nodes * TOKEN_BYTES * (1 if is_chain else 2) + weights
    if type(message) is DraftRequest:
        tokens = message.base if message.opening else 1
        return ENVELOPE_BYTES[DraftRequest] + tokens * TOKEN_BYTES + round(hidden_numbers * HIDDEN_BYTES)
    return len(msgspec.msgpack.encode(message))


def sizes_of(fleet: Fleet) -> Callable[[Message, float], int]:
    """Return the function that gives the bytes of a message with the hidden states of so many tokens."""
    temperature, vocabulary, shape = fleet.workload.temperature, fleet.vocabulary, fleet.drafters.shape
    numbers = fleet.hidden if fleet.drafters.kind in ("eagle", "block") else 0
    return lambda message, states: payload_bytes(message, temperature, vocabulary, shape, states * numbers)
