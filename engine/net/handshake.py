"""Who speaks on a connection: what a node says of itself, what both ends must agree on, and whose tags are whose.

Tags on the wire are local to a connection: 0 for the first stream of a target, 1 for its second. Both ends translate
them into the tags of the fleet, by which records name streams. So a peer cannot even say the tag of another.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fleet.scenario.settled import Fleet
from fleet.scenario.workload import longest_of

Role = Literal["verifier", "router"]
Text = Annotated[str, Meta(max_length=200)]
Incarnation = Annotated[int, Meta(ge=0, le=1 << 62)]


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first frame of a connection: who asks to be served, and under which terms (`terms_of`).

    `number`: of the target, from 0. `incarnation`: which life of it this is; a later one is larger. `attempt`: how
    often this life has lost its connection. `drafter`: the number of the one that it believes to have called; of a
    router any. `goes_on`: whether this life goes on with the requests of the one before it, in later epochs; else they
    begin anew. The version of the protocol is in every frame's header.
    """

    role: Role
    number: int
    incarnation: Incarnation
    attempt: Incarnation
    terms: Annotated[dict[Text, Text], Meta(max_length=32)]
    drafter: Annotated[int, Meta(ge=0, le=10**9)] = 0
    goes_on: bool = False


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """The answer to a Hello: it is served. `attempt` is that of the Hello, `incarnation` the life of who serves."""

    attempt: Incarnation
    incarnation: Incarnation


class Denied(msgspec.Struct, tag="denied", frozen=True):
    """The other answer to a Hello: why it is not served. `later`: whether to ask again may help."""

    attempt: Incarnation
    reason: Annotated[str, Meta(max_length=400)]
    later: bool = False


class Unknown(msgspec.Struct, tag="unknown", frozen=True):
    """The answer to any other message of somebody who is not welcomed, or not any more: say Hello."""


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """Nothing is to be said, but the speaker lives. A door sends it back."""


class Bye(msgspec.Struct, tag="bye", frozen=True):
    """The speaker leaves: whatever it has open is to be released."""


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """To be sent back at once by the other end's worker. Link times come from round trips."""

    tag: int
    number: int


Control = Hello | Welcome | Denied | Unknown | Alive | Bye | Ping


class Seat(msgspec.Struct, frozen=True):
    """Whom a connection speaks for, and so which of the fleet's tags are its own: `first`, `first + step`, ...

    `most`: how many streams it may have. A target that was started again has other tags (`generation`), because its
    requests begin anew; they belong to the same target by `Fleet.target_of`.
    """

    role: Role
    number: int
    first: int
    step: int
    most: int
    generation: int = 0

    def own(self, local: int) -> int | None:
        """Return the fleet's tag of a tag on the wire; None if that is beyond what this connection may have."""
        if not 0 <= local < self.most:
            return None
        return self.first + (self.generation * self.most + local) * self.step

    def local(self, own: int) -> int:
        """Return the tag on the wire of one of this connection's tags; ValueError for another's."""
        place, left = divmod(own - self.first, self.step)
        local = place - self.generation * self.most
        if left or not 0 <= local < self.most:
            raise ValueError(f"tag {own} is not one of {self.role} {self.number + 1}")
        return local


def seat_of(fleet: Fleet, role: Role, number: int, generation: int = 0) -> Seat | None:
    """Return the seat of a target, or of the router, which speaks for all streams; None where the fleet has none."""
    count, streams = fleet.verifiers.count, fleet.streams or max(fleet.workload.requests, 1)
    if role == "router":
        return Seat(role, 0, 0, 1, max(streams, count), generation) if number == 0 and fleet.routed else None
    return Seat(role, number, number, count, -(-streams // count), generation) if 0 <= number < count else None


def terms_of(fleet: Fleet) -> dict[str, str]:
    """Return what both ends of a connection must agree on, by the keys of the scenario.

    Models, devices and times are each host's own affair; so are positions, which only the host of a model knows.
    """
    drafters, verifiers, workload = fleet.drafters, fleet.verifiers, fleet.workload
    longest, _ = longest_of(workload)
    terms: dict[str, object] = {
        "seed": fleet.seed,
        "drafters.count": drafters.count,
        "drafters.depth": drafters.depth,
        "drafters.shape": drafters.shape,
        "drafters.kind": drafters.kind,
        "drafters.allocate": drafters.allocate,
        "drafters.overlap": drafters.overlap,
        "drafters.route": drafters.route,
        "verifiers.count": verifiers.count,
        "verifiers.rule": verifiers.rule,
        "verifiers.allocate": verifiers.allocate,
        "workload.temperature": workload.temperature,
        "workload.top_k": workload.top_k,
        "workload.top_p": workload.top_p,
        "workload.requests": workload.requests,
        "workload.streams": fleet.streams,
        "tokens of the longest text": longest,
    }
    return {key: _shown(value) for key, value in terms.items()}


def difference(ours: dict[str, str], theirs: dict[str, str], role: Role) -> str:
    """Say in one line what a drafter and the `role` that connects to it do not agree on; empty where they agree."""
    for key in [*ours, *sorted(theirs.keys() - ours.keys())]:
        mine, other = (in_a_line(terms.get(key, "nothing"))[:80] for terms in (ours, theirs))
        if mine != other:
            differs = f"{in_a_line(key)} is {mine} at the drafter and {other} at the {role}"
            return f"{differs}; start both with the same scenario"
    return ""


def in_a_line(text: str) -> str:
    """Return a text of somebody else's as it may be printed: in one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def _shown(value: object) -> str:
    return (value if isinstance(value, str) else msgspec.json.encode(value).decode())[:200]
