"""Delays of stations, links, and sizes of messages, for the arrays of the compiled loop."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave
from specfleet.fleet.stations.payload import sizes_of
from specfleet.fleet.times.overhead import Overhead
from specfleet.sim.fast.events import Array, Record, Wires
from specfleet.sim.fast.layout import A_LINK, A_MESSAGE, A_WAY
from specfleet.sim.fast.numbers import MultiplierSources, child

NewGenerator = Callable[..., np.random.Generator]

NO_DECKS = np.zeros((1, 1, 1), dtype=np.int16), np.full(1, -1)


def set_sizes(fleet: Fleet, requests: Array, tags: Array, numbers: Array) -> None:
    """Set the sizes of the first and of the last message of requests; `tags`: the stream of each."""
    size_of = sizes_of(fleet)
    requests["opening_bytes"] = _of_each(
        lambda prompt: size_of(DraftRequest(0, 0, 1, prompt + 1, opening=True), prompt), requests["prompt"]
    )
    # The size of a message is the sum of its parts; that of a number depends on its bits.
    of_tag = _of_each(lambda bits: size_of(Leave((1 << bits) - 1, 0), 0), np.frexp(tags)[1])
    of_number = _of_each(lambda bits: size_of(Leave(0, (1 << bits) - 1), 0), np.frexp(numbers)[1])
    requests["leave_bytes"] = of_tag + of_number - size_of(Leave(0, 0), 0)


def _of_each(function: Callable[[int], int], arguments: Array) -> Array:
    """Return the values of a function, with one call for each argument."""
    distinct, of = np.unique(arguments, return_inverse=True)
    return np.array([function(argument) for argument in distinct.tolist()])[of]


def set_delays(station: Record, overhead: Overhead, sources: MultiplierSources, make: NewGenerator) -> None:
    """Set the delays of a station's overhead, and the sources of their ratios, each with its own generator."""
    for place, name in enumerate(("queued", "woken", "after")):
        delay = getattr(overhead, name)
        station[f"{name}_s"] = delay.mean_s
        (station[f"{name}_ratios"],) = sources.add(partial(make, place), delay.spread)


def wires_of(
    fleet: Fleet, rooms: Mapping[tuple[int, int], int], longest_answer: int, sources: MultiplierSources
) -> tuple[Wires, dict[tuple[int, int], int]]:
    """Return both directions of each used link, and the number of each downlink.

    - `rooms`: messages in one direction that may be in flight, by target and drafter.
    """
    links = sources_of(fleet.seed).links
    N = fleet.verifiers.count
    dealt = sorted(rooms.items()) if fleet.drafters.stations else []
    ways: list[dict[str, int]] = []
    means: dict[tuple[float, float], int] = {}
    for number, ((target, drafter), room) in enumerate(dealt):
        link = fleet.link(target, drafter).time
        mean = means.setdefault((link.latency_s, link.s_per_byte), len(means))
        for way, station in enumerate((target, N + drafter)):  # down, and up
            (jitter,) = sources.add(partial(child, links, number, way), link.spread)
            ways.append({"station": station, "room": room, "link": mean, "jitter": jitter})
    made = np.zeros(len(ways), dtype=A_WAY)
    for name in ways[0] if ways else ():
        made[name] = [way[name] for way in ways]
    made["start"] = np.cumsum(made["room"]) - made["room"]
    size_of, longest = sizes_of(fleet), fleet.room.longest_draft
    request_bytes = [size_of(DraftRequest(0, 0, 0, 0), states) for states in range(2)]  # each state adds as many
    wires = Wires(
        made,
        np.array(list(means), dtype=A_LINK),
        np.zeros(made["room"].sum(), dtype=A_MESSAGE),
        np.array([size_of(Draft(0, 0, 0, 0, drafted), 0) for drafted in range(longest + 1)]),
        request_bytes[0] + np.arange(longest_answer + 1) * (request_bytes[1] - request_bytes[0]),
    )
    return wires, {pair: 2 * number for number, (pair, _) in enumerate(dealt)}
