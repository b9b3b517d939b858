"""A real target's node: one process with the target model, its user's requests, and clients to its drafters."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from engine.decoding.telemetry import timed
from engine.node.build import load_target, new_streams, new_target
from engine.node.device_lock import device_lock
from engine.node.executors import VerifyExecutor
from engine.node.node import HERE, Node, Site, clients_of_drafters
from engine.node.pending import PendingDrafts, repeats
from engine.node.write_ahead_log import open_log, unfinished
from fleet.records.recorder import RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import verifier_station


def verifier_node(
    fleet: Fleet,
    target: int,
    prompts: Sequence[Sequence[int]],
    addresses: Mapping[int, str],
    lock_file: Path | None = None,
    site: Site = HERE,
) -> Node:
    """Return the node of target number `target`, with its model loaded.

    - `prompts[i]`: token ids of request i.
    - `addresses`: see `clients_of_drafters`.
    - `lock_file`: of a device that it shares by time slices.
    - `site`: a later life of its process goes on with the requests that are not finished.
    """
    life, model = site.life, load_target(fleet)
    streams = {tag: own for tag, own in streams_of(fleet).items() if fleet.target_of(tag) == target}
    rows = len(streams) if fleet.streams else 1  # with arrivals, the number of open ones is unknown
    executor = VerifyExecutor(
        new_target(fleet, model, room=(max(rows, 1), fleet.room.longest_row)),
        new_streams(fleet, prompts),
        PendingDrafts(repeats(fleet)),
        sends_hidden=fleet.drafters.kind == "eagle",
        signals=fleet.needs != "lengths",
        rejoins=fleet.verifiers.patience.patience_s > 0,
    )
    life.wait_until_back()
    connections, sockets = None, None
    if fleet.drafters.count:
        connections, sockets = clients_of_drafters(fleet, [target], addresses, site, model.vocabulary)
    node = Node(
        fleet,
        RecordedStation(verifier_station(fleet, target), "real", open_log(life), life.written),
        executor,
        connections,
        sockets,
        unfinished(streams, life),
        timed=partial(timed, device=model.device),
        lock=device_lock(lock_file),
        site=site,
    )
    node.outputs = executor.outputs
    return node
