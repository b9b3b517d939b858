"""How far each resource of a place goes, in targets a drafter, and what ends first."""

import math
import timeit
from collections.abc import Sequence

import msgspec

from experiments.scale.equations import star_of
from experiments.scale.places import (
    IN_GROUPS,
    IN_TURN,
    MEMORY_SHARE,
    NEW_TOKENS,
    PROMPT_TOKENS,
    TARGETS_OF_DRAFTER,
    Place,
    placed,
)
from experiments.scale.simulated import Simulated
from fleet.policies.route import DrafterView, ShortestQueue

LOSS = 0.05  # of the throughput with fresh views: what stale ones may cost
TIMED = 200
TIME_IN_TURN, TIME_IN_GROUPS = "drafter's time, in turn", "drafter's time, in groups"
PORT, OWN_LINK, MEMORY = "drafter's port", "target's own link", "drafter's memory"


class Resource(msgspec.Struct, frozen=True):
    """A resource of a place.

    `used`: its share in use with TARGETS_OF_DRAFTER targets a drafter. `ends_at`: targets a drafter at which it is
    used up; infinite where it is never. `how`: which of this is simulated, by equations or assumed.
    """

    name: str
    used: float
    ends_at: float
    how: str


def resources_of(place: Place, in_turn: Simulated, in_groups: Simulated) -> list[Resource]:
    """Return the resources of a place, given its simulations."""
    star = star_of(place)
    alone_per_s = star.rounds_per_s(1, IN_TURN)  # rounds of a target whose drafter is free
    per_target = in_turn.rounds_per_s / in_turn.targets
    larger = max(in_turn.request_bytes, in_turn.draft_bytes)  # each way has the whole bandwidth
    sessions = sessions_in_memory(place)
    return [
        Resource(TIME_IN_TURN, in_turn.load, star.carries(IN_TURN), "use: simulated; end: equations"),
        Resource(TIME_IN_GROUPS, in_groups.load, star.carries(IN_GROUPS), "use: simulated; end: equations"),
        Resource(
            PORT,
            TARGETS_OF_DRAFTER * per_target * larger / place.port_bytes_per_s,
            place.port_bytes_per_s / (alone_per_s * larger),
            "bytes: simulated; bandwidth: assumed; end: equations",
        ),
        Resource(
            OWN_LINK,
            per_target * larger / place.access_bytes_per_s,
            math.inf,
            "bytes and rounds: simulated; bandwidth: assumed",
        ),
        Resource(
            MEMORY,
            TARGETS_OF_DRAFTER / sessions,
            sessions,
            "estimated from the model's shape; share of the device: assumed",
        ),
    ]


def first_to_end(resources: Sequence[Resource], without: str) -> Resource:
    """Return the resource that ends at the fewest targets; `without`: the name of one that does not count."""
    return min((one for one in resources if one.name != without), key=lambda one: one.ends_at)


def sessions_in_memory(place: Place) -> float:
    """How many sessions of the longest text fit into a drafter's memory."""
    return _room_bytes(place) / (_bytes_of_token(place) * (PROMPT_TOKENS + NEW_TOKENS))


def longest_text(place: Place) -> float:
    """Length of text, in tokens, at which TARGETS_OF_DRAFTER sessions fill a drafter's memory."""
    return _room_bytes(place) / (_bytes_of_token(place) * TARGETS_OF_DRAFTER)


def _room_bytes(place: Place) -> float:
    _, drafter = placed(place)
    return MEMORY_SHARE * drafter.device.memory_bytes.value - drafter.weights_bytes


def _bytes_of_token(place: Place) -> float:
    return placed(place)[1].shape.cache_bytes_per_token()


def lost(views: Sequence[Simulated]) -> list[tuple[float, float]]:
    """Age of a router's views and the share of the throughput that it costs, beside views without age, by age."""
    by_age = {one.work.view_s: one.tokens_per_s for one in views}
    fresh = by_age[0.0]
    return [(age, 1 - by_age[age] / fresh) for age in sorted(age for age in by_age if age)]


def age_of_loss(views: Sequence[Simulated], share: float = LOSS) -> float:
    """Age of views at which that share is lost, between the ages that were simulated; infinite beyond them."""
    before_s, before = 0.0, 0.0
    for age_s, loss in lost(views):
        if loss >= share:
            return before_s + (age_s - before_s) * (share - before) / (loss - before)
        before_s, before = age_s, max(loss, 0.0)
    return math.inf


def decision_s(drafters: int) -> float:
    """Processor time here of one decision of a router over so many drafters; the least of several tries."""
    views = [DrafterView(waiting=(7 * number) % 11) for number in range(drafters)]
    route = ShortestQueue()
    turns = timeit.repeat(lambda: route.choose(5, 0, views, 0), number=TIMED, repeat=5)
    return min(turns) / TIMED
