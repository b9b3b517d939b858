"""Run a scenario with `[batch]`: one process, one station, drafter and target on the same device."""

from collections.abc import Sequence
from functools import partial

import torch

from engine.decoding.models import CausalLM
from engine.decoding.telemetry import timed
from engine.net.clock import now_s
from engine.node.batch_executor import BatchExecutor
from engine.node.build import load_target, new_drafter, new_streams, new_target
from engine.node.node import Node
from engine.node.observer import Observed, unobserved
from engine.node.write_ahead_log import Served
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.batch import BatchStation
from fleet.stations.build import batch_station


def serve_batch(
    fleet: Fleet, prompts: Sequence[Sequence[int]], signals: bool = False, watched: Observed = unobserved
) -> Served:
    """Serve the fleet's batch in this process. `signals`: whether those of every drafted token are recorded."""
    station = batch_station(fleet)
    large = load_target(fleet)
    executor = executor_of(fleet, station, large, prompts, signals)
    log = drive(fleet, station, executor, large.device, watched)
    return Served(log, executor.outputs, executor.recorded)


def drive(
    fleet: Fleet,
    station: BatchStation,
    executor: BatchExecutor,
    device: torch.device,
    watched: Observed = unobserved,
) -> Log:
    """Decode all requests of the fleet with a batch station; return its log."""
    recorded, zero_s = RecordedStation(station, "real"), now_s()
    node = Node(fleet, recorded, executor, requests=streams_of(fleet), timed=partial(timed, device=device))
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
    streams = new_streams(fleet, prompts)
    target = new_target(fleet, large, station.rule, room)
    drafter = new_drafter(fleet, large, station.rule, room)
    allocation = station.grants.allocation
    watch = station.grants.stops if allocation.watches else None
    with_signals = signals or allocation.needs == "signals"
    return BatchExecutor(drafter, target, streams, station.rule, watch, with_signals)
