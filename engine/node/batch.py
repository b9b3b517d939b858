"""Run a scenario with `[batch]`: one process, one station, drafter and target on the same device."""

import heapq
import time
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import torch

from engine.decoding.models import CausalLM
from engine.decoding.telemetry import timed
from engine.net.clock import now_s
from engine.net.content import NOTHING, Content
from engine.node.batch_executor import BatchExecutor
from engine.node.build import load_target, new_drafter, new_streams, new_target
from engine.node.capacity import with_positions
from engine.node.observer import Observed, unobserved
from engine.node.worker import Worker
from fleet.chance.token import Token
from fleet.records.recorded import Log, RecordedStation
from fleet.records.run import Run, make_run
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import Request, streams_of
from fleet.stations.batch import BatchStation
from fleet.stations.build import batch_station, join_of
from fleet.stations.messages import Finished, Instruction


class Batched(msgspec.Struct, frozen=True):
    """A batch's run, the new tokens of each request, and the signals of its drafted tokens, if they were recorded."""

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]]


def serve_batch(
    scenario: Scenario, prompts: Sequence[Sequence[int]], signals: bool = False, watched: Observed = unobserved
) -> Batched:
    """Run the scenario in this process. `signals`: whether those of every drafted token are recorded."""
    fleet = with_positions(settle(scenario))
    station = batch_station(fleet)
    large = load_target(fleet)
    executor = executor_of(fleet, station, large, prompts, signals)
    log = drive(fleet, station, executor, large.device, watched)
    return Batched(make_run(scenario, "engine", log, fleet), executor.outputs, executor.recorded)


def drive(
    fleet: Fleet,
    station: BatchStation,
    executor: BatchExecutor,
    device: torch.device,
    watched: Observed = unobserved,
) -> Log:
    """Let the users of the fleet send their requests, and the station serve them; return its log."""
    streams = {tag: iter(requests) for tag, requests in streams_of(fleet).items()}
    opening: list[tuple[float, int, Request]] = []  # requests to come, by when, their stream

    def open_next(tag: int) -> None:
        request = next(streams[tag], None)
        if request is not None:
            heapq.heappush(opening, (request.not_before_s, tag, request))

    def post(instruction: Instruction, _content: Content) -> None:
        if isinstance(instruction, Finished):
            open_next(instruction.tag)

    on_device = partial(timed, device=device)
    worker = Worker(RecordedStation(station, "real"), executor, post, on_device, zero_s=now_s())
    for tag in streams:
        open_next(tag)
    with watched(lambda: [worker.recorded], worker.zero_s, [worker]):
        while opening or station.ready:
            for tag, request in _due(opening, now_s() - worker.zero_s):
                worker.handle(join_of(fleet, tag, request), NOTHING, now_s())
            if station.ready:
                worker.step()
            elif opening:
                time.sleep(max(0.0, opening[0][0] - (now_s() - worker.zero_s)))
    return worker.recorded.log


def executor_of(
    fleet: Fleet,
    station: BatchStation,
    large: CausalLM,
    prompts: Sequence[Sequence[int]],
    signals: bool = False,
) -> BatchExecutor:
    """Return the executor of a batch station, with caches as its rule needs them."""
    room = station.rule.pool, fleet.room.longest_row
    target = new_target(fleet, large, station.rule, room)
    drafter = new_drafter(fleet, large, station.rule, room)
    allocation = station.grants.allocation
    watch = station.grants.stops if allocation.watches else None
    with_signals = signals or allocation.needs == "signals"
    return BatchExecutor(drafter, target, new_streams(fleet, prompts), station.rule, watch, with_signals)


def _due(opening: list[tuple[float, int, Request]], time_s: float) -> Iterator[tuple[int, Request]]:
    """Take the requests out whose time has come."""
    while opening and opening[0][0] <= time_s:
        _, tag, request = heapq.heappop(opening)
        yield tag, request
