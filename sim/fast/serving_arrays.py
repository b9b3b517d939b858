"""Arrays of serving targets for their compiled loop: requests, streams, targets, and the laws of their steps."""

from collections import Counter
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from fleet.acceptance.models import Sampler
from fleet.acceptance.sources import sources_of
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import Request, streams_of
from fleet.stations.outcomes import Outcomes
from fleet.times.roofline import Roofline
from fleet.times.step_time import StepTime
from sim.fast.arrays import drawn_lengths, texts_of
from sim.fast.kernel import Array, Numbers
from sim.fast.layout import A_LAW, A_POINT, A_ROOFLINE, A_ROW, A_SERVING_CLOCK, A_TARGET, AN_ATTENTION
from sim.fast.numbers import DrawnLengths, MultiplierSources, child
from sim.fast.serving import NEVER_S, Laws, Limits, Slots

UNLIMITED = 1 << 40  # KV blocks


class ServingArrays(NamedTuple):
    """State of the loop, and its sources of random numbers; see `serving.py` and `layout.py`."""

    requests: Array
    streams: Array
    targets: Array
    slots: Slots
    limits: Limits
    laws: Laws
    numbers: Numbers
    clocks: Array
    sources: MultiplierSources
    lengths: DrawnLengths | None


def serving_of(fleet: Fleet) -> ServingArrays:
    """Lay out serving targets in their initial state.

    Raises InputError as the SimPy path does, for a bad workload file or acceptance model.
    """
    streams = streams_of(fleet)
    sampler, lengths = Outcomes(fleet).lengths, None
    flat = [request for requests in streams.values() for request in requests]
    if fleet.drafters.count:
        assert isinstance(sampler, Sampler)
        lengths = drawn_lengths(fleet, sampler, flat)
    sources, laws = MultiplierSources(), LawTables()
    requests, rows = texts_of(flat, lengths), _rows(fleet, streams)
    targets = _targets(fleet, sources, laws)
    at, to = (np.zeros(len(sources.blocks), dtype=np.int64) for _ in range(2))
    clocks = np.zeros(1, dtype=A_SERVING_CLOCK)
    clocks["begins"], clocks["arriving"], clocks["scheduled"] = -1, len(rows), len(rows)
    rows["arrives_s"], rows["order"] = requests["opens_s"][rows["request"]], np.arange(len(rows))
    return ServingArrays(
        requests=requests,
        streams=rows,
        targets=targets,
        slots=_slots(fleet, targets, rows),
        limits=_limits(fleet),
        laws=laws.arrays(),
        numbers=Numbers(sources.pool.array, at, to, lengths.pool.array if lengths else np.zeros(0, dtype=np.int16)),
        clocks=clocks,
        sources=sources,
        lengths=lengths,
    )


class LawTables:
    """Step times and their rooflines, as records."""

    def __init__(self) -> None:
        self.laws: list[tuple[float, ...]] = []
        self.rooflines: list[tuple[float, ...]] = []
        self.points: list[tuple[float, float]] = []
        self.attention: list[tuple[float, ...]] = []

    def add(self, time: StepTime) -> int:
        """Add a step time; return its number."""
        terms = tuple([float(getattr(time, name)) for name in A_LAW.names or () if name != "roofline"])
        self.laws.append((*terms, -1 if time.roofline is None else self._roofline(time.roofline)))
        return len(self.laws) - 1

    def _roofline(self, roofline: Roofline) -> int:
        points = list(zip(roofline.tokens, roofline.pass_s, strict=True))
        self.rooflines.append((
            roofline.sharpness, roofline.host_s, roofline.in_turn, len(self.points), len(points), len(self.attention),
            len(roofline.attention),
        ))  # fmt: skip
        self.points += points
        self.attention += [tuple(map(float, msgspec.structs.astuple(kind))) for kind in roofline.attention]
        return len(self.rooflines) - 1

    def arrays(self) -> Laws:
        """Return the tables as arrays."""
        return Laws(
            np.array(self.laws, dtype=A_LAW),
            np.array(self.rooflines, dtype=A_ROOFLINE),
            np.array(self.points, dtype=A_POINT),
            np.array(self.attention, dtype=AN_ATTENTION),
        )


def _rows(fleet: Fleet, streams: dict[int, list[Request]]) -> Array:
    made, tags = np.zeros(len(streams), dtype=A_ROW), list(streams)
    ends = np.cumsum([len(requests) for requests in streams.values()])
    made["tag"] = tags
    made["target"] = [fleet.target_of(tag) for tag in tags]
    made["priority"] = [fleet.verifiers.priority(fleet.target_of(tag)) for tag in tags]
    made["last"] = ends - 1
    made["request"] = np.concatenate([[0], ends[:-1]])
    return made


def _targets(fleet: Fleet, sources: MultiplierSources, laws: LawTables) -> Array:
    """Return the targets. Random generators are made in the order of `sim/network.py`."""
    drawn, made = sources_of(fleet.seed), np.zeros(fleet.verifiers.count, dtype=A_TARGET)
    drafter = fleet.drafter_times(0) if fleet.verifiers.drafts is not None else None
    numbers: dict[int, int] = {}  # of laws, by identity of the step times, which the fleet keeps

    def law(time: StepTime) -> int:
        if id(time) not in numbers:
            numbers[id(time)] = laws.add(time)
        return numbers[id(time)]

    for number, target in enumerate(made):
        times = fleet.verifier_times(number)
        steps = {"verify": times.verify, "prefill": times.prefill, "decode": times.decode}
        spreads = {name: step.spread for name, step in steps.items()} | {"pass": times.verify.spread}
        if drafter is not None:
            steps |= {"draft": drafter.draft, "draft_prefill": drafter.prefill}
            spreads["draft"] = drafter.draft.spread
        for name, step in steps.items():
            target[name] = law(step)
        added = sources.add(partial(child, drawn.targets, number), *spreads.values())
        for name, source in zip(spreads, added, strict=True):
            target[f"{name}_ratios"] = source
        for place, name in enumerate(("queued", "woken", "after")):
            delay = getattr(times.overhead, name)
            target[f"{name}_s"] = delay.mean_s
            (target[f"{name}_ratios"],) = sources.add(partial(child, drawn.delays, number, place), delay.spread)
    made["first"] = -1
    made["free_blocks"] = fleet.verifiers.batching.kv_blocks or UNLIMITED
    return made


def _slots(fleet: Fleet, targets: Array, rows: Array) -> Slots:
    """Return empty places for the rows of each target, and all first requests in order of arrival."""
    streams, most = Counter(rows["target"].tolist()), fleet.verifiers.batching.max_num_seqs
    places = np.array([min(streams[number], most) for number in range(len(targets))], dtype=np.int64)
    targets["start"] = np.cumsum(places) - places
    running, works, members, ended, kinds, tokens = (np.zeros(places.sum(), dtype=np.int32) for _ in range(6))
    fed, context = (np.zeros(places.sum()) for _ in range(2))
    due_s, order = np.full(len(targets), NEVER_S), np.zeros(len(targets), dtype=np.int64)
    arrivals = np.argsort(rows["arrives_s"], kind="stable").astype(np.int32)
    return Slots(running, works, members, ended, kinds, tokens, fed, context, due_s, order, arrivals)


def _limits(fleet: Fleet) -> Limits:
    rule, drafts = fleet.verifiers.batching, fleet.verifiers.drafts
    named = {name: int(value) for name, value in msgspec.structs.asdict(rule).items() if name in Limits._fields}
    return Limits(
        **named,
        drafts=int(drafts is not None),
        depth=drafts.depth if drafts else 0,
        positions=drafts.positions if drafts else 0,
        reads_prompts=int(drafts is not None and drafts.reads_prompts),
    )
