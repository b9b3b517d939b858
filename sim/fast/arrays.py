"""Arrays of a plain star for the compiled loop: requests, streams, stations, links, and mean times.

Times and sizes come from the functions of the SimPy path, for each possible base, prompt and number of tokens. Random
generators are made in the order of `sim/network.py`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from specfleet.fleet.acceptance.models import Sampler, expected_committed
from specfleet.fleet.acceptance.sources import RandomSources, sources_of
from specfleet.fleet.policies.shapes import reach
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave
from specfleet.fleet.stations.outcomes import Outcomes
from specfleet.fleet.stations.payload import sizes_of
from specfleet.fleet.times.durations import grid_place, step_durations
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import StepKind
from specfleet.fleet.times.step_time import Constant, StepTime
from specfleet.sim.fast.events import Array, Numbers, Record, Wires
from specfleet.sim.fast.kernel import Means
from specfleet.sim.fast.layout import A_CLOCK, A_LINK, A_MESSAGE, A_REQUEST, A_STATION, A_STREAM, A_WAY, AN_EVENT
from specfleet.sim.fast.numbers import DrawnLengths, MultiplierSources, child

NewGenerator = Callable[..., np.random.Generator]

NO_DECKS = np.zeros((1, 1, 1), dtype=np.int16), np.full(1, -1)
UNUSED = np.random.default_rng(0)  # for step times without spread


class StarArrays(NamedTuple):
    """State of the loop, and its sources of random numbers; see `kernel.py` and `layout.py`."""

    requests: Array
    streams: Array
    stations: Array
    wires: Wires
    means: Means
    numbers: Numbers
    heap: Array
    clocks: Array
    sources: MultiplierSources
    lengths: DrawnLengths


def star_of(fleet: Fleet) -> StarArrays:
    """Lay out a plain star in its initial state.

    Raises InputError as the SimPy path does, for a bad workload file or acceptance model.
    """
    streams = streams_of(fleet)
    sampler = Outcomes(fleet).lengths
    assert isinstance(sampler, Sampler)
    flat = [request for requests in streams.values() for request in requests]
    lengths, sources = drawn_lengths(fleet, sampler, flat), MultiplierSources()
    drawn = sources_of(fleet.seed)
    stations = _stations(fleet, sources, drawn)
    # A stream has at most two messages in flight: a leave, and the first one of its next request.
    rooms = Counter((fleet.target_of(tag), fleet.drafter_of(tag)) for tag in streams for _ in range(2))
    wires, downs = wires_of(fleet, rooms, max(request.new_tokens for request in flat), sources)
    placed = place_streams(fleet, streams, downs, A_STREAM)
    placed["request"] -= 1  # before the first one
    at, to = (np.zeros(len(sources.blocks), dtype=np.int64) for _ in range(2))
    star = StarArrays(
        requests=_requests(fleet, streams, lengths), streams=placed, stations=stations, wires=wires,
        means=_means(fleet, flat), numbers=Numbers(sources.pool.array, at, to, lengths.pool.array, *NO_DECKS),
        heap=np.zeros(len(streams) + 2 * len(stations) + len(wires.messages), dtype=AN_EVENT),
        clocks=np.zeros(1, dtype=A_CLOCK), sources=sources, lengths=lengths,
    )  # fmt: skip
    star.clocks["begins"] = -1
    return star


def _whole(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)


def _real(values: Sequence[float] | Sequence[Sequence[float]]) -> Array:
    return np.array(values, dtype=np.float64)


def mean_of(time: StepTime, kind: StepKind) -> Callable[[int, int], float]:
    """Return the mean time in seconds of a step of `kind` as a function of (tokens, base)."""
    draw = step_durations(msgspec.structs.replace(time, spread=Constant()), UNUSED)
    return lambda tokens, base: draw(*grid_place(kind, tokens, base), 0.0)


def drawn_lengths(fleet: Fleet, sampler: Sampler, requests: Sequence[Request]) -> DrawnLengths:
    """Draw the acceptance lengths of about all rounds of these requests."""
    committed = expected_committed(fleet.length_model(), fleet.room.longest_draft)
    rounds = [request.new_tokens / committed for request in requests]
    return DrawnLengths(sampler, [request.number for request in requests], rounds)


def texts_of(requests: Sequence[Request], lengths: DrawnLengths | None) -> Array:
    """Return the records of requests with their texts. `lengths`: acceptance lengths; None if nothing is drafted."""
    made = np.zeros(len(requests), dtype=A_REQUEST)
    made["prompt"] = [request.prompt_tokens for request in requests]
    made["goal"] = made["prompt"] + _whole([request.new_tokens for request in requests])
    made["number"] = [request.number for request in requests]
    made["opens_s"] = [request.not_before_s for request in requests]
    if lengths is not None:
        made["lengths_from"], made["lengths_to"] = lengths.start, lengths.end
    return made


def _requests(fleet: Fleet, streams: dict[int, list[Request]], lengths: DrawnLengths) -> Array:
    flat, tags = [request for requests in streams.values() for request in requests], list(streams)
    made = texts_of(flat, lengths)
    prompts, lengths_of = made["prompt"], list(map(len, streams.values()))
    verifying = [fleet.verifier_times(fleet.target_of(tag)).prefill for tag in tags]
    made["prefill_s"] = _prefills_s(verifying, lengths_of, prompts)
    # The first round follows the prompt and the token of the prefill.
    drafting = [fleet.drafter_times(fleet.drafter_of(tag)).prefill for tag in tags]
    made["draft_prefill_s"] = _prefills_s(drafting, lengths_of, prompts)
    set_sizes(fleet, made, np.repeat(_whole(tags), lengths_of), made["number"])
    return made


def set_sizes(fleet: Fleet, requests: Array, tags: Array, numbers: Array) -> None:
    """Set the sizes of the first and of the last message of requests; `tags`: the stream of each."""
    size_of = sizes_of(fleet)
    requests["opening_bytes"] = _of_each(
        lambda prompt: size_of(DraftRequest(0, 0, 1, prompt + 1, opening=True), prompt), requests["prompt"]
    )
    # The size of a message is the sum of its parts.
    of_tag = _of_each(lambda tag: size_of(Leave(tag, 0), 0), tags)
    of_number = _of_each(lambda number: size_of(Leave(0, number), 0), numbers)
    requests["leave_bytes"] = of_tag + of_number - size_of(Leave(0, 0), 0)


def _prefills_s(times: Sequence[StepTime], requests: Sequence[int], prompts: Array) -> Array:
    """Return the mean prefill time of each request; `requests` is the number of requests of each stream."""
    numbers = {id(time): time for time in times}
    place = {key: number for number, key in enumerate(numbers)}
    of_stream = np.repeat(_whole([place[id(time)] for time in times]), requests)
    distinct, which = np.unique(of_stream * (prompts.max() + 1) + prompts, return_inverse=True)
    time_of, prompt_of = np.divmod(distinct, prompts.max() + 1)
    means_s = [mean_of(time, "prefill") for time in numbers.values()]
    distinct_s = [means_s[time](prompt, 0) for time, prompt in zip(time_of.tolist(), prompt_of.tolist(), strict=True)]
    return _real(distinct_s)[which]


def _of_each(function: Callable[[int], int], arguments: Array) -> Array:
    """Return the values of a function, with one call for each argument."""
    distinct, of = np.unique(arguments, return_inverse=True)
    return _whole([function(argument) for argument in distinct.tolist()])[of]


def place_streams(
    fleet: Fleet, streams: dict[int, list[Request]], downs: dict[tuple[int, int], int], kind: np.dtype[Any]
) -> Array:
    """Return the records of streams with their stations, their links and their first and last requests."""
    made, tags = np.zeros(len(streams), dtype=kind), list(streams)
    ends = np.cumsum([len(requests) for requests in streams.values()])
    made["tag"] = tags
    made["target"] = [fleet.target_of(tag) for tag in tags]
    made["priority"] = [fleet.verifiers.priority(fleet.target_of(tag)) for tag in tags]
    made["last"] = ends - 1
    made["request"] = np.concatenate([[0], ends[:-1]])
    made["drafter"] = -1
    if fleet.drafters.stations:
        made["drafter"] = [fleet.verifiers.count + fleet.drafter_of(tag) for tag in tags]
        made["down"] = [downs[fleet.target_of(tag), fleet.drafter_of(tag)] for tag in tags]
        made["up"] = made["down"] + 1
    return made


def _stations(fleet: Fleet, sources: MultiplierSources, drawn: RandomSources) -> Array:
    """Return the stations: targets, then drafters. Generators of delays are numbered from the drafters on."""
    N, M = fleet.verifiers.count, fleet.drafters.count
    made = np.zeros(N + M, dtype=A_STATION)
    parts: list[tuple[VerifierTimes | DrafterTimes, StepTime, Callable[[], np.random.Generator], int]] = []
    for target in range(N):
        verifying = fleet.verifier_times(target)
        parts.append((verifying, verifying.verify, partial(child, drawn.targets, target), M + target))
    for drafter in range(M):
        drafting, path = fleet.drafter_times(drafter), (drafter,) if M > 1 else ()  # as `of_each` does
        parts.append((drafting, drafting.draft, partial(child, drawn.drafters, *path), drafter))
    places = {id(entry): place for place, entry in enumerate([*fleet.verifiers.times, *fleet.drafters.times])}
    for station, (times, step, make, number) in zip(made, parts, strict=True):
        station["times"] = places[id(times)]
        station["steps"], station["prefills"] = sources.add(make, step.spread, times.prefill.spread)
        set_delays(station, times.overhead, sources, partial(child, drawn.delays, number))
    for name in ("first", "newest", "program"):
        made[name] = -1
    made["is_drafter"] = np.arange(N + M) >= N
    return made


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
    committed = longest + 1  # most new tokens between two requests
    if fleet.verifiers.late == "decode":
        committed = longest_answer
    wires = Wires(
        made,
        np.array(list(means), dtype=A_LINK),
        np.zeros(made["room"].sum(), dtype=A_MESSAGE),
        _whole([size_of(Draft(0, 0, 0, 0, drafted), 0) for drafted in range(longest + 1)]),
        _whole([size_of(DraftRequest(0, 0, 0, 0), states) for states in range(committed + 1)]),
    )
    return wires, {pair: 2 * number for number, (pair, _) in enumerate(dealt)}


def _means(fleet: Fleet, requests: Sequence[Request]) -> Means:
    """Return mean times by base; all drafters have the same idle slowdown."""
    drafters = fleet.drafters
    idle = drafters.times[0].idle
    bases = range(
        min(request.prompt_tokens for request in requests),
        max(request.prompt_tokens + request.new_tokens for request in requests) + 1,
    )
    tokens = [reach(drafters.depth, base, drafters.positions) for base in bases]
    steps = [list(map(mean_of(times.verify, "verify"), tokens, bases)) for times in fleet.verifiers.times]
    steps += [list(map(mean_of(times.draft, "draft"), tokens, bases)) for times in drafters.times]
    return Means(
        least_base=bases.start, step_s=_real(steps), draft_tokens=_whole(tokens),
        catch_up_s=drafters.times[0].catch_up_s, gaps_s=_real(idle.gaps_s), slowdowns=_real(idle.slowdowns),
    )  # fmt: skip
