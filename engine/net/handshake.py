"""The handshake of a connection, the terms that both ends must agree on, and the tags of each peer.

Tags on the wire are local to a connection: 0 for the first stream of a target, 1 for its second. Both ends translate
them into the tags of the fleet, so a peer cannot name a stream of another.
"""

from operator import attrgetter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Number

TERMS = (
    "seed", "precision", "drafters.count", "drafters.depth", "drafters.shape", "drafters.kind",
    "drafters.overlap", "drafters.route", "verifiers.count", "verifiers.rule", "verifiers.allocate", "verifiers.late",
    "workload.temperature", "workload.top_k", "workload.top_p", "workload.requests",
)  # fmt: skip
LIVES = 256  # of a target behind a router that restarts its requests
Role = Literal["verifier", "router"]
Text = Annotated[str, Meta(max_length=200)]
Incarnation = Annotated[int, Meta(ge=0, le=1 << 62)]


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first frame of a connection: a client identifies itself, with its terms (`terms_of`).

    - `number`: of the target, from 0.
    - `incarnation`: of its process; a later one is larger.
    - `attempt`: how often this process has lost its connection.
    - `drafter`: number of the drafter that it means to call; any for a router.
    - `goes_on`: whether it continues the requests of its last incarnation, in later epochs; else it restarts them.

    The header of every frame has the version of the protocol.
    """

    role: Role
    number: Number
    incarnation: Incarnation
    attempt: Incarnation
    terms: Annotated[dict[Text, Text], Meta(max_length=32)]
    drafter: Annotated[int, Meta(ge=0, le=10**9)] = 0
    goes_on: bool = False


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """The Hello of that attempt is accepted."""

    attempt: Incarnation


class Denied(msgspec.Struct, tag="denied", frozen=True):
    """The Hello is refused. `later`: whether a later one may be accepted."""

    attempt: Incarnation
    reason: Annotated[str, Meta(max_length=400)]
    later: bool = False


class Unknown(msgspec.Struct, tag="unknown", frozen=True):
    """The answer to any other message of a peer that is not accepted: it must send Hello."""


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """A sign of life of a client; the server sends it back."""


class Bye(msgspec.Struct, tag="bye", frozen=True):
    """The sender leaves; its sessions are released."""


Control = Hello | Welcome | Denied | Unknown | Alive | Bye


class Seat(msgspec.Struct, frozen=True):
    """The place of a peer in the fleet, and its tags: `first`, `first + step`, ..., at most `most` of them.

    A target that restarts its requests gets other tags (`generation`), which `Fleet.target_of` maps to the same target.
    """

    role: Role
    number: int
    first: int
    step: int
    most: int
    generation: int = 0

    def to_fleet(self, local: int) -> int | None:
        """Return the fleet's tag of a tag on the wire; None if the connection may not have it."""
        if not 0 <= local < self.most:
            return None
        return self.first + (self.generation * self.most + local) * self.step

    def to_wire(self, tag: int) -> int:
        """Return the tag on the wire of one of this connection's tags; ValueError for another's."""
        place, left = divmod(tag - self.first, self.step)
        local = place - self.generation * self.most
        if left or not 0 <= local < self.most:
            raise ValueError(f"tag {tag} is not one of {self.role} {self.number + 1}")
        return local


def seat_of(fleet: Fleet, role: Role, number: int, generation: int = 0) -> Seat | None:
    """Return the seat of a target, or of the router, which has all streams; None if the fleet has no such peer."""
    count, streams = fleet.verifiers.count, fleet.streams or max(fleet.workload.requests, 1)
    most = -(-streams // count)
    if role == "router":  # its tags are those of all lives of its targets
        return Seat(role, 0, 0, 1, LIVES * most * count, generation) if number == 0 and fleet.routed else None
    return Seat(role, number, number, count, most, generation) if 0 <= number < count else None


def terms_of(fleet: Fleet) -> dict[str, str]:
    """Return the values that both ends of a connection must agree on, by keys of the scenario.

    Models, their positions, devices and times may differ.
    """
    terms, batching = {key: attrgetter(key)(fleet) for key in TERMS}, fleet.verifiers.batching
    terms |= {"workload.streams": fleet.streams, "tokens of the longest text": fleet.lengths.longest_text}
    terms["verifiers.kv_tokens"] = batching.kv_blocks * batching.block_size  # whether a drafter may be overtaken
    texts = {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode() for key, value in terms.items()
    }
    return {key: text[:200] for key, text in texts.items()}


def difference(ours: dict[str, str], theirs: dict[str, str], role: Role) -> str:
    """Return the first difference between the terms of a drafter and of a peer, in one line; empty if there is none."""
    for key in [*ours, *sorted(theirs.keys() - ours.keys())]:
        mine, other = (printable(terms.get(key, "nothing"))[:80] for terms in (ours, theirs))
        if mine != other:
            differs = f"{printable(key)} is {mine} at the drafter and {other} at the {role}"
            return f"{differs}; start both with the same scenario"
    return ""


def printable(text: str) -> str:
    """Return a text of a peer in one line, without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
