"""A real target's node: one process with the target model, its user's requests, and clients to its drafters."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from engine.decoding.telemetry import timed
from engine.net.client import ClientEnd, max_reconnect_s
from engine.net.connections import ConnectionTable
from engine.net.limits import max_bytes
from engine.net.links import stated_links
from engine.net.sockets import Sockets
from engine.node.build import load_target, new_streams, new_target
from engine.node.device_lock import device_lock
from engine.node.executors import VerifyExecutor
from engine.node.node import HERE, Node, Site
from engine.node.pending import PendingDrafts, repeats
from engine.node.write_ahead_log import open_log, recorded_station, unfinished
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
    - `addresses`: of its drafters, tcp://HOST:PORT by number; with a router, of the router alone.
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
        numbers = addresses if fleet.routed else sorted({fleet.drafter_of(tag) for tag in streams})
        addresses = {number: addresses[number] for number in numbers}
        born, goes_on = time.time_ns(), life.number > 0
        clients = {
            number: ClientEnd(
                fleet, target, born, "verifier", number, number, address, vocabulary=model.vocabulary, goes_on=goes_on
            )
            for number, address in addresses.items()
        }
        client_of = (lambda _tag: min(clients)) if fleet.routed else fleet.drafter_of
        connections = ConnectionTable(clients=clients, client_of=client_of, links=stated_links(fleet))
        sockets = Sockets(None, addresses, max_bytes(fleet, model.vocabulary), site.keys, max_reconnect_s(fleet))
    return Node(
        fleet,
        recorded_station(life, verifier_station(fleet, target), "real", open_log(life)),
        executor,
        connections,
        sockets,
        unfinished(streams, life),
        timed=partial(timed, device=model.device),
        lock=device_lock(lock_file),
        site=site,
        outputs=executor.outputs,
    )
