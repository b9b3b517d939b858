"""Run a scenario with `[batch]`: one process, one station, drafter and target on the same device."""

from collections.abc import Sequence
from functools import partial

import torch

from engine.decoding.models import CausalLM
from engine.decoding.telemetry import timed
from engine.net.clock import now_s
from engine.node.batch_executor import BatchExecutor
from engine.node.build import load_target, new_drafter, new_streams, new_target
from engine.node.node import HERE, Node, Site
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.batch import BatchStation
from fleet.stations.build import batch_station


def batch_node(fleet: Fleet, prompts: Sequence[Sequence[int]], signals: bool = False, site: Site = HERE) -> Node:
    """Return the node of the fleet's batch. `signals`: whether those of every drafted token are recorded."""
    station, large = batch_station(fleet), load_target(fleet)
    return _node(fleet, station, executor_of(fleet, station, large, prompts, signals), large.device, site)


def drive(fleet: Fleet, station: BatchStation, executor: BatchExecutor, device: torch.device) -> Log:
    """Decode all requests of the fleet with a batch station; return its log."""
    return _node(fleet, station, executor, device, HERE).serve(now_s())


def _node(fleet: Fleet, station: BatchStation, executor: BatchExecutor, device: torch.device, site: Site) -> Node:
    recorded, on_device = RecordedStation(station, "real"), partial(timed, device=device)
    node = Node(fleet, recorded, executor, requests=streams_of(fleet), timed=on_device, site=site)
    node.outputs, node.signals = executor.outputs, executor.recorded
    return node


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
