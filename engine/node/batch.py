"""Run a scenario with `[batch]`: one process, one station, drafter and target on the same device."""

from collections.abc import Sequence
from functools import partial

import msgspec
import torch

from engine.decoding.models import CausalLM
from engine.decoding.telemetry import timed
from engine.net.clock import now_s
from engine.node.batch_executor import BatchExecutor
from engine.node.build import load_target, new_drafter, new_streams, new_target
from engine.node.capacity import with_positions
from engine.node.node import Node
from engine.node.observer import Observed, unobserved
from fleet.acceptance.token import Token
from fleet.records.recorder import Log, RecordedStation
from fleet.records.run import Run, make_run
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import streams_of
from fleet.stations.batch import BatchStation
from fleet.stations.build import batch_station, joins_of


class Batched(msgspec.Struct, frozen=True):
    """A batch's run, the new tokens of each request, and the recorded signals of its drafted tokens, if any."""

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]]


def serve_batch(
    scenario: Scenario, prompts: Sequence[Sequence[int]], signals: bool = False, watched: Observed = unobserved
) -> Batched:
    """Run the scenario in this process. `signals`: whether those of every drafted token are recorded."""
    fleet = with_positions(resolve(scenario))
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
    """Decode all requests of the fleet with a batch station; return its log."""
    streams, zero_s = streams_of(fleet), now_s()
    node = Node(
        RecordedStation(station, "real"),
        executor,
        users={tag: joins_of(fleet, tag, own) for tag, own in streams.items()},
        opens_s={request.number: request.not_before_s for own in streams.values() for request in own},
        timed=partial(timed, device=device),
    )
    with watched(node.stations, zero_s, node.workers):
        return node.serve(zero_s)


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
