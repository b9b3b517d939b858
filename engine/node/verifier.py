"""A real target's node: one process with the target model, its user's requests, and clients to its drafters."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from engine.decoding.telemetry import timed
from engine.net.client import ClientEnd, max_reconnect_s
from engine.net.connections import ConnectionTable
from engine.net.keys import Keys
from engine.net.limits import max_bytes
from engine.net.links import stated_links
from engine.net.sockets import Sockets
from engine.node.build import load_target, new_streams, new_target
from engine.node.device_lock import device_lock
from engine.node.executors import VerifyExecutor
from engine.node.node import Node
from engine.node.pending import Retransmit
from engine.node.write_ahead_log import FIRST, Life, note_finished, open_log, recorded_station, unfinished
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import joins_of, verifier_station


class VerifierNode(Node):
    """A node with the target model, as target number `target`.

    - `prompts[i]`: token ids of request i.
    - `addresses`: of its drafters, tcp://HOST:PORT by number; with a router, of the router alone.
    - `lock_file`: of a device that it shares by time slices.
    - `life`: of its process; a later one goes on with the requests that are not finished.
    """

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        prompts: Sequence[Sequence[int]],
        addresses: Mapping[int, str],
        lock_file: Path | None = None,
        say: Callable[[str], None] = lambda _line: None,
        keys: Keys | None = None,
        life: Life = FIRST,
    ) -> None:
        self.fleet = fleet
        model = load_target(fleet)
        streams = {tag: own for tag, own in streams_of(fleet).items() if fleet.target_of(tag) == target}
        rows = len(streams) if fleet.streams else 1  # with arrivals, the number of open ones is unknown
        self.executor = VerifyExecutor(
            new_target(fleet, model, room=(max(rows, 1), fleet.room.longest_row)),
            new_streams(fleet, prompts),
            sends_hidden=fleet.drafters.kind == "eagle",
            signals=fleet.needs != "lengths",
            rejoins=fleet.verifiers.patience.patience_s > 0,
            retransmit=Retransmit(fleet),
        )
        life.wait_until_back()
        speculates = fleet.drafters.count > 0
        if speculates and not fleet.routed:
            addresses = {drafter: addresses[drafter] for drafter in sorted({fleet.drafter_of(tag) for tag in streams})}
        super().__init__(
            recorded_station(life, verifier_station(fleet, target), "real", open_log(life)),
            self.executor,
            connections_of(fleet, target, addresses, model.vocabulary, life) if speculates else None,
            Sockets(None, addresses, max_bytes(fleet, model.vocabulary), keys, max_reconnect_s(fleet))
            if speculates
            else None,
            users={tag: joins_of(fleet, tag, own) for tag, own in unfinished(streams, life).items()},
            opens_s={request.number: request.not_before_s for own in streams.values() for request in own},
            timed=partial(timed, device=model.device),
            lock=device_lock(lock_file),
            say=say,
            life=life,
            finished=self._keep,
        )

    def _keep(self, request: int) -> None:
        note_finished(self.worker.recorded.log, request, self.executor.outputs[request])

    @property
    def outputs(self) -> dict[int, list[int]]:
        """The new tokens of every finished request."""
        return self.executor.outputs


def connections_of(
    fleet: Fleet,
    target: int,
    addresses: Mapping[int, str],
    vocabulary: int,
    life: Life,
) -> ConnectionTable:
    """Return the clients of a target: one for each drafter of its streams, or one for the router."""
    born = time.time_ns()
    clients = {
        drafter: ClientEnd(
            fleet,
            target,
            born,
            drafter=drafter,
            port=drafter,
            name=address.removeprefix("tcp://"),
            vocabulary=vocabulary,
            goes_on=life.number > 0,
        )
        for drafter, address in addresses.items()
    }
    client_of = (lambda _tag: min(clients)) if fleet.routed else fleet.drafter_of
    return ConnectionTable(clients=clients, client_of=client_of, links=stated_links(fleet))
