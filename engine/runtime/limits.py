"""How large a message of a fleet may be, and so what a peer can make a node keep: this, times the queue of a socket."""

from engine.runtime.frames import HEADER, MOST_ENVELOPE_BYTES
from fleet.scenario.settled import Fleet
from fleet.stations.payload import HIDDEN_BYTES, PROBABILITY_BYTES, TOKEN_BYTES

PING_BYTES = 1 << 18  # of a link's calibration


def most_bytes(fleet: Fleet, vocabulary: int = 0, state_numbers: int = 0) -> int:
    """Return the bytes of the largest frame that an honest peer sends: an opening request, a draft, or a ping.

    `vocabulary`: of the distributions that come with drafts, where any do; 0 for that of the profile. `state_numbers`:
    of a token's hidden states, where requests bring them.
    """
    nodes = fleet.drafters.shape.nodes(fleet.room.longest_draft)
    request = (TOKEN_BYTES + HIDDEN_BYTES * state_numbers) * fleet.room.longest_row + TOKEN_BYTES * nodes
    drawn = PROBABILITY_BYTES * (vocabulary or fleet.vocabulary) * (nodes + 1) if fleet.workload.temperature > 0 else 0
    return HEADER.size + MOST_ENVELOPE_BYTES + max(request, 2 * TOKEN_BYTES * nodes + drawn, PING_BYTES)
