"""Arrays of serving targets for their compiled loop: requests, streams, stations, links, and the laws of steps."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from specfleet.fleet.acceptance.models import Sampler
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.outcomes import Outcomes
from specfleet.fleet.times.effects import NEVER_IDLE
from specfleet.fleet.times.roofline import Roofline
from specfleet.fleet.times.station_times import DrafterTimes
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.fast.arrays import (
    NewGenerator,
    drawn_lengths,
    place_streams,
    set_delays,
    set_sizes,
    texts_of,
    wires_of,
)
from specfleet.sim.fast.events import Array, Numbers, Record, Wires
from specfleet.sim.fast.layout import (
    A_LAW,
    A_POINT,
    A_ROOFLINE,
    A_ROW,
    A_SAMPLE,
    A_SERVER,
    A_SERVING_CLOCK,
    A_STATE,
    AN_ATTENTION,
    AN_EVENT,
)
from specfleet.sim.fast.numbers import DrawnLengths, MultiplierSources, child
from specfleet.sim.fast.serving_state import DECODE_LATE, SKIP, WAIT, Laws, Limits, Slots
from specfleet.sim.fast.sums import COLUMNS, SAMPLED, WORK, Sums

UNLIMITED = 1 << 40  # KV blocks
ROWS, SAMPLE = 1 << 14, 1 << 17  # of a table of sums; values of a sample
MOST_SUMS = 1 << 20  # of the stations' times
LATE = {"skip": SKIP, "decode": DECODE_LATE, "wait": WAIT}


class ServingArrays(NamedTuple):
    """State of the loop, and its sources of random numbers; see `serving.py` and `layout.py`."""

    requests: Array
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
    sources: MultiplierSources
    lengths: DrawnLengths | None


def serving_of(fleet: Fleet) -> ServingArrays:
    """Lay out serving targets in their initial state.

    Raises InputError as the SimPy path does, for a bad workload file or acceptance model.
    """
    streams = streams_of(fleet)
    sampler, lengths = Outcomes(fleet).lengths, None
    flat = [request for requests in streams.values() for request in requests]
    if isinstance(sampler, Sampler):
        lengths = drawn_lengths(fleet, sampler, flat)
    sources, laws = MultiplierSources(), LawTables()
    # Of each request, a draft request and a leave may be in flight. Unless texts go on without drafts, only its leave
    # is in flight when the next request begins.
    # A leave that withdraws a start leaves its place among the events to the end of that delay.
    most = {tag: 2 * len(requests) if fleet.verifiers.late == "decode" else 2 for tag, requests in streams.items()}
    requests, (wires, downs) = texts_of(flat, lengths), wires_of(fleet, streams, most, sources)
    rows, stations = place_streams(fleet, streams, downs, A_ROW), _stations(fleet, sources, laws)
    if fleet.drafters.stations:
        set_sizes(fleet, requests, np.repeat(rows["tag"], list(map(len, streams.values()))))
    at, to = (np.zeros(len(sources.blocks), dtype=np.int64) for _ in range(2))
    clocks = np.zeros(1, dtype=A_SERVING_CLOCK)
    clocks["begins"], clocks["arriving"], clocks["scheduled"] = -1, len(rows), len(rows)
    clocks["first_done_s"] = np.inf
    rows["open_there"] = rows["ended_s"] = -1
    rows["arrives_s"], rows["order"] = requests["opens_s"][rows["request"]], np.arange(len(rows))
    return ServingArrays(
        requests=requests, streams=rows, stations=stations, slots=_slots(fleet, stations, rows), limits=_limits(fleet),
        laws=laws.arrays(fleet.drafters.times), wires=wires,
        numbers=Numbers(sources.pool.array, at, to, lengths.pool.array if lengths else np.zeros(0, dtype=np.int16)),
        heap=np.zeros(1 + len(stations) + len(wires.messages), dtype=AN_EVENT), clocks=clocks,
        sums=_sums(fleet, len(stations)), sources=sources, lengths=lengths,
    )  # fmt: skip


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
            terms = tuple([float(getattr(time, name)) for name in A_LAW.names or () if name != "roofline"])
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
            np.array(self.laws, dtype=A_LAW),
            np.array(self.rooflines, dtype=A_ROOFLINE),
            np.array(self.points, dtype=A_POINT),
            np.array(self.attention, dtype=AN_ATTENTION),
            np.array(idle.gaps_s, dtype=np.float64),
            np.array(idle.slowdowns, dtype=np.float64),
            float(drafters[0].catch_up_s) if drafters else 0.0,
        )


def _stations(fleet: Fleet, sources: MultiplierSources, laws: LawTables) -> Array:
    """Return the targets, then the drafters. Random generators are made in the order of `sim/network.py`."""
    N, M, drawn = fleet.verifiers.count, fleet.drafters.stations, sources_of(fleet.seed)
    made = np.zeros(N + M, dtype=A_SERVER)
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
    made["is_drafter"] = np.arange(N + M) >= N
    made["free_blocks"] = UNLIMITED
    made["free_blocks"][:N] = [fleet.verifiers.batching_of(target).kv_blocks or UNLIMITED for target in range(N)]
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


def _slots(fleet: Fleet, stations: Array, rows: Array) -> Slots:
    """Return empty places for the rows of each station, and all first requests in order of arrival."""
    streams, limits = Counter(rows["target"].tolist()) + Counter(rows["drafter"].tolist()), _limits(fleet)
    most = [limits.group if station["is_drafter"] else limits.max_num_seqs for station in stations]
    places = np.array([min(streams[number], rows_most) for number, rows_most in enumerate(most)], dtype=np.int64)
    stations["start"] = np.cumsum(places) - places
    running, works, members, ended, kinds, tokens = (np.zeros(places.sum(), dtype=np.int32) for _ in range(6))
    fed, context = (np.zeros(places.sum()) for _ in range(2))
    arrivals = np.argsort(rows["arrives_s"], kind="stable").astype(np.int32)
    return Slots(running, works, members, ended, kinds, tokens, fed, context, arrivals)


def _limits(fleet: Fleet) -> Limits:
    rule, drafts, group = fleet.verifiers.batching, fleet.verifiers.drafts, fleet.drafters.group
    named = {name: int(value) for name, value in msgspec.structs.asdict(rule).items() if name in Limits._fields}
    by = drafts or fleet.drafters
    return Limits(
        **named, drafts=int(drafts is not None), depth=by.depth, positions=by.positions,
        reads_prompts=int(drafts is not None and drafts.reads_prompts), late=LATE[fleet.verifiers.late],
        group=1 if isinstance(group, One) else group.most, streams=fleet.streams,
    )  # fmt: skip


def _sums(fleet: Fleet, stations: int) -> Sums:
    """Return empty sums."""
    limits_s = {} if fleet.slo is None else fleet.slo.limits_s
    columns = 1 + len(WORK) * stations
    states = np.zeros(2 + len(SAMPLED), dtype=A_STATE)
    states["row"][:2], states["most"][:2] = -1, 1
    return Sums(
        np.zeros((ROWS, COLUMNS)),
        np.zeros((max(min(ROWS, MOST_SUMS // columns // 2 * 2), 32), columns)),
        np.zeros((len(SAMPLED), SAMPLE), dtype=A_SAMPLE),
        states,
        np.array([limits_s.get(name, np.inf) for name in ("ttft", "tpot", "latency")] + [fleet.request_s]),
    )
