"""The drafter's node: one process that drafts for every target that connects to it (StarSD, algorithm 1)."""

from functools import partial
from pathlib import Path

from engine.decoding.draft import Drafter
from engine.decoding.telemetry import timed
from engine.node.build import new_drafter, new_streams
from engine.node.capacity import rows_at_drafter
from engine.node.device_lock import device_lock
from engine.node.executors import DraftExecutor
from engine.node.node import HERE, Node, Site, drafting_node
from fleet.scenario.resolved import Fleet


def drafter_node(fleet: Fleet, number: int = 0, lock_file: Path | None = None, site: Site = HERE) -> Node:
    """Return the node of drafter `number` (from 0), with its model loaded.

    `lock_file`: of a device that it shares by time slices.
    """
    drafter = new_drafter(fleet, room=(rows_at_drafter(fleet, number), fleet.room.longest_row))
    executor = DraftExecutor(drafter, new_streams(fleet), ahead=not fleet.in_turn)
    drafter.warm_up(8)  # the first steps of a process are slow
    inputs = (drafter.model.vocabulary, drafter.state_numbers) if isinstance(drafter, Drafter) else (0, 0)
    on_device = partial(timed, device=drafter.device)
    return drafting_node(fleet, number, executor, "real", site, *inputs, on_device, device_lock(lock_file))
