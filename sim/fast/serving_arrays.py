"""Arrays of serving targets for their compiled loop: requests, streams, stations, links, and the laws of steps."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from specfleet.fleet.acceptance.models import DECK, FIRST_BLOCK, Sampler
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.policies.blocks import UNLIMITED
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import requests_of
from specfleet.fleet.stations.outcomes import Outcomes
from specfleet.fleet.times.effects import NEVER_IDLE
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.station_times import DrafterTimes
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.fast import layout
from specfleet.sim.fast.arrays import NO_DECKS, NewGenerator, set_delays, set_sizes, wires_of
from specfleet.sim.fast.events import COMES, Array, Numbers, Record, Wires
from specfleet.sim.fast.numbers import DealtLengths, MultiplierSources, child
from specfleet.sim.fast.serving_state import DECODE_LATE, SKIP, WAIT, Laws, Limits, Sharing, Slots
from specfleet.sim.fast.sharing_arrays import sharing_of
from specfleet.sim.fast.sums import COLUMNS, SAMPLED, WORK, Sums

ROWS, SAMPLE = 1 << 14, 1 << 17  # of a table of sums; values of a sample
FIRST_MESSAGES, FIRST_ROWS = 16, 64
FIRST_DECKS = 1 << 10  # streams of a closed loop drift apart
ROUNDS = 256, 2048  # lengths of an open request: fewest, most
IN_CACHE, FEWEST, MOST_SUMS = 1 << 18, 1 << 10, 1 << 20  # sums of stations' times: cached ones, rows, all
LATE = {"skip": SKIP, "decode": DECODE_LATE, "wait": WAIT}


class ServingArrays(NamedTuple):
    """State of the loop, and its sources of random numbers; see `serving.py` and `layout.py`."""

    texts: Array
    streams: Array
    stations: Array
    slots: Slots
    limits: Limits
    laws: Laws
    wires: Wires
    numbers: Numbers
    heap: Array
    clocks: Array
    sums: Sums
    sharing: Sharing | None
    sources: MultiplierSources
    lengths: DealtLengths | None

    def tags(self, requests: Array) -> Array:
        """Return the streams of requests: dealt in turn, or one for each."""
        if self.limits.streams:
            return requests % self.limits.streams
        if self.sharing is None or not len(self.sharing.tags):
            return requests
        return self.sharing.tags[requests]


def serving_of(fleet: Fleet) -> ServingArrays:
    """Lay out serving targets in their initial state.

    Raises InputError as the SimPy path does, for a bad workload file or acceptance model.
    """
    requests, sampler = requests_of(fleet), Outcomes(fleet).lengths
    lengths = DealtLengths(sampler) if isinstance(sampler, Sampler) else None
    count, sources, laws = len(requests.prompts), MultiplierSources(), LawTables()
    N, M = fleet.verifiers.count, fleet.drafters.stations
    firsts = int((requests.before < 0).sum())  # of conversations; else all
    tags = range(min(fleet.streams or firsts, math.lcm(N, M or 1)))  # they are dealt in turn
    pairs = [(fleet.target_of(tag), fleet.drafter_of(tag)) for tag in tags]
    wires, downs = wires_of(fleet, dict.fromkeys(pairs, FIRST_MESSAGES), int(requests.answers.max()), sources)
    homes = np.zeros(len(pairs), dtype=layout.A_HOME)
    homes["target"] = [target for target, _ in pairs]
    homes["drafter"] = [N + drafter if M else -1 for _, drafter in pairs]
    homes["down"] = [downs.get(pair, -1) for pair in pairs]
    stations = _stations(fleet, sources, laws)
    texts = np.zeros(count, dtype=layout.A_TEXT)
    texts["prompt"], texts["goal"] = requests.prompts, requests.prompts + requests.answers
    texts["opens_s"] = requests.opens_s
    if M:
        numbers = np.arange(count)
        set_sizes(fleet, texts, numbers % fleet.streams if fleet.streams else requests.conversations, numbers)
    slots, clocks = _slots(fleet, stations, homes, count), np.zeros(1, dtype=layout.A_SERVING_CLOCK)
    rows = np.zeros(fleet.streams, dtype=layout.A_ROW)
    rows["open_there"] = rows["ended_s"] = -1
    rows["request"] = np.arange(fleet.streams)
    for name in homes.dtype.names or ():
        rows[name] = homes[name][rows["request"] % len(homes)]
    clocks["logs"] = 1
    clocks["begins"], clocks["free"], clocks["first_done_s"] = -1, -1, np.inf
    clocks["arriving"] = 0 if fleet.streams else firsts
    clocks["scheduled"], clocks["events"] = fleet.streams or count, fleet.streams
    coming = fleet.streams or (firsts if fleet.workload.conversations else 0)  # at most
    heap = np.zeros(1 + len(stations) + len(wires.messages) + coming, dtype=layout.AN_EVENT)
    heap["order"][: len(rows)] = heap["subject"][: len(rows)] = rows["request"]
    heap["event"][: len(rows)] = COMES
    at, to = (np.zeros(len(sources.blocks), dtype=np.int64) for _ in range(2))
    decks, dealt = NO_DECKS
    if lengths is not None:
        places = FIRST_DECKS + 4 * len(rows) // DECK
        decks, dealt = np.zeros((places, DECK, FIRST_BLOCK), dtype=np.int16), np.full(places, -1)
    room = int(np.clip(fleet.lengths.mean_answer / 2, *ROUNDS)) if lengths else 1
    drawn = np.zeros((len(rows), room), dtype=np.int16)
    return ServingArrays(
        texts=texts, streams=rows, stations=stations, slots=slots, limits=_limits(fleet),
        laws=laws.arrays(fleet.drafters.times), wires=wires,
        numbers=Numbers(sources.pool, at, to, drawn, decks, dealt),
        heap=heap, clocks=clocks, sums=_sums(fleet, len(stations)),
        sharing=sharing_of(fleet, requests, len(slots.running)), sources=sources, lengths=lengths,
    )  # fmt: skip


def with_rows(arrays: ServingArrays, needed: int) -> ServingArrays:
    """Return the arrays with so many more free rows, and at least twice as many as before."""
    rows, clock, drawn = arrays.streams, arrays.clocks[0], arrays.numbers.lengths
    more = max(needed, len(rows), FIRST_ROWS)
    made = np.zeros(more, dtype=layout.A_ROW)
    made["behind"] = np.arange(len(rows) + 1, len(rows) + more + 1)
    made["behind"][-1] = clock["free"]
    clock["free"], clock["frees"] = len(rows), clock["frees"] + more
    lengths = np.concatenate([drawn, np.zeros((more, drawn.shape[1]), dtype=np.int16)])
    return arrays._replace(
        streams=np.concatenate([rows, made]), numbers=arrays.numbers._replace(lengths=lengths)
    )  # fmt: skip


def with_messages(arrays: ServingArrays, number: int) -> ServingArrays:
    """Return the arrays with room for more messages in a direction of a link: two of each row of a target."""
    wires, way = arrays.wires, arrays.wires.ways[number]
    order = way["start"] + (way["oldest"] + np.arange(way["room"])) % way["room"]
    more = int(way["room"]) + 2 * min(arrays.limits.max_num_seqs, len(arrays.slots.running))
    messages = np.concatenate([wires.messages, wires.messages[order], np.zeros(more, dtype=layout.A_MESSAGE)])
    way["start"], way["oldest"], way["room"] = len(wires.messages), 0, way["room"] + more
    heap = np.concatenate([arrays.heap, np.zeros(len(messages) - len(wires.messages), dtype=layout.AN_EVENT)])
    return arrays._replace(wires=wires._replace(messages=messages), heap=heap)


class LawTables:
    """Step times and their rooflines, as records."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}  # of laws, by identity of the step times, which the fleet keeps
        self.laws: list[tuple[float, ...]] = []
        self.rooflines: list[tuple[float, ...]] = []
        self.points: list[tuple[float, float]] = []
        self.attention: list[tuple[float, ...]] = []

    def add(self, time: StepTime) -> int:
        """Add a step time unless it is known; return its number."""
        if id(time) not in self.numbers:
            terms = tuple([float(getattr(time, name)) for name in layout.A_LAW.names or () if name != "roofline"])
            self.laws.append((*terms, -1 if time.roofline is None else self._roofline(time.roofline)))
            self.numbers[id(time)] = len(self.laws) - 1
        return self.numbers[id(time)]

    def _roofline(self, roofline: Roofline) -> int:
        points = list(zip(roofline.tokens, roofline.pass_s, strict=True))
        self.rooflines.append((
            roofline.sharpness, roofline.host_s, roofline.in_turn, len(self.points), len(points), len(self.attention),
            len(roofline.attention),
        ))  # fmt: skip
        self.points += points
        self.attention += [tuple(map(float, msgspec.structs.astuple(kind))) for kind in roofline.attention]
        return len(self.rooflines) - 1

    def arrays(self, drafters: Sequence[DrafterTimes]) -> Laws:
        """Return the tables as arrays. All drafters have the same idle slowdown, and catch up alike."""
        idle = drafters[0].idle if drafters else NEVER_IDLE
        return Laws(
            np.array(self.laws, dtype=layout.A_LAW),
            np.array(self.rooflines, dtype=layout.A_ROOFLINE),
            np.array(self.points, dtype=layout.A_POINT),
            np.array(self.attention, dtype=layout.AN_ATTENTION),
            np.array(idle.gaps_s, dtype=np.float64),
            np.array(idle.slowdowns, dtype=np.float64),
            float(drafters[0].catch_up_s) if drafters else 0.0,
        )


def _stations(fleet: Fleet, sources: MultiplierSources, laws: LawTables) -> Array:
    """Return the targets, then the drafters. Random generators are made in the order of `sim/network.py`."""
    N, M, drawn = fleet.verifiers.count, fleet.drafters.stations, sources_of(fleet.seed)
    made = np.zeros(N + M, dtype=layout.A_SERVER)
    local = fleet.drafter_times(0) if fleet.verifiers.drafts is not None else None
    for number in range(N):
        times = fleet.verifier_times(number)
        steps = {"verify": times.verify, "prefill": times.prefill, "decode": times.decode, "pass": times.verify}
        if local is not None:
            steps["draft"] = local.draft
            made[number]["draft_prefill"] = laws.add(local.prefill)
        _set_steps(made[number], steps, laws, sources, partial(child, drawn.targets, number))
        set_delays(made[number], times.overhead, sources, partial(child, drawn.delays, M + number))
    for number in range(M):
        drafting, path = fleet.drafter_times(number), (number,) if M > 1 else ()  # as `of_each` does
        steps = {"draft": drafting.draft, "prefill": drafting.prefill}
        _set_steps(made[N + number], steps, laws, sources, partial(child, drawn.drafters, *path))
        set_delays(made[N + number], drafting.overhead, sources, partial(child, drawn.delays, number))
    made["first"] = made["newest"] = made["pause"] = -1
    made["is_drafter"], made["head"] = np.arange(N + M) >= N, np.arange(N + M)
    made["free_blocks"] = UNLIMITED
    limits = np.array([fleet.verifiers.batching_of(target).kv_blocks for target in range(N)])
    made["free_blocks"][:N] = np.where(limits, limits, UNLIMITED)
    made["unused"], made["number"], made["evicts"][:N] = made["free_blocks"], np.arange(N + M), limits > 0
    return made


def _set_steps(
    station: Record, steps: dict[str, StepTime], laws: LawTables, sources: MultiplierSources, make: NewGenerator
) -> None:
    """Set the laws of a station's steps, and the sources of their ratios, which share a generator."""
    added = sources.add(make, *[step.spread for step in steps.values()])
    for (name, step), source in zip(steps.items(), added, strict=True):
        station[f"{name}_ratios"] = source
        if name != "pass":  # of several rows; its time is computed from others
            station[name] = laws.add(step)


def _slots(fleet: Fleet, stations: Array, homes: Array, requests: int) -> Slots:
    """Return empty places for the rows of each station, and all first requests in order of arrival."""
    limits, streams = _limits(fleet), fleet.streams or requests
    most = [limits.group if station["is_drafter"] else limits.max_num_seqs for station in stations]
    dealt = [np.bincount(homes[name][homes[name] >= 0], minlength=len(stations)) for name in ("target", "drafter")]
    at_most = sum(dealt) * -(-streams // len(homes))
    places = np.minimum(at_most, most).astype(np.int64)
    stations["start"] = np.cumsum(places) - places
    running, works, members, ended, kinds, tokens = (np.zeros(places.sum(), dtype=np.int32) for _ in range(6))
    fed, context, waits_s = (np.zeros(places.sum()) for _ in range(3))
    return Slots(running, works, members, ended, kinds, tokens, fed, context, waits_s, homes)


def _limits(fleet: Fleet) -> Limits:
    rule, drafts, group = fleet.verifiers.batching, fleet.verifiers.drafts, fleet.drafters.group
    named = {name: int(value) for name, value in msgspec.structs.asdict(rule).items() if name in Limits._fields}
    by = drafts or fleet.drafters
    return Limits(
        **named, drafts=int(drafts is not None), depth=by.depth, positions=by.positions,
        reads_prompts=int(drafts is not None and drafts.reads_prompts), late=LATE[fleet.verifiers.late],
        group=1 if isinstance(group, One) else group.most, streams=fleet.streams,
        after_s=fleet.request_s, targets=fleet.verifiers.count,
    )  # fmt: skip


def _sums(fleet: Fleet, stations: int) -> Sums:
    limits_s = {} if fleet.slo is None else fleet.slo.limits_s
    columns = 1 + len(WORK) * stations
    rows = max(IN_CACHE // columns, min(MOST_SUMS // columns, FEWEST)) // 2 * 2
    states = np.zeros(2 + len(SAMPLED), dtype=layout.A_STATE)
    states["row"][:2], states["most"][:2] = -1, 1
    return Sums(
        np.zeros((ROWS, COLUMNS)),
        np.zeros((max(min(ROWS, rows), 32), columns)),
        np.zeros((len(SAMPLED), SAMPLE), dtype=layout.A_SAMPLE),
        states,
        np.array([limits_s.get(name, np.inf) for name in ("ttft", "tpot", "latency")] + [fleet.request_s]),
    )
