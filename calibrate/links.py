"""Link times from round trips: pings of several sizes to a drafter node, which answers from its worker.

One way is half a round trip, so the two clocks are never compared.
"""

import time
from collections.abc import Sequence

import numpy as np

from specfleet.engine.launch.bodies import node_body
from specfleet.engine.launch.places import drafter_place
from specfleet.engine.launch.processes import NodeProcess, in_process
from specfleet.engine.net.actions import Deliver, Opened
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import Content
from specfleet.engine.net.handshake import Ping
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.socket_thread import TICK_S
from specfleet.engine.net.sockets import Sockets
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.payload import PROBABILITY_BYTES

PAUSE_S = 0.002  # between pings, so that the node's threads have gone to sleep as they do between requests
TIMEOUT_S = 10.0


def measure_round_trips(fleet: Fleet, payloads_bytes: Sequence[int], repeats: int) -> list[list[float]]:
    """Return round-trip times in seconds for each payload, each the same size both ways."""
    place = drafter_place(fleet, 0)
    drafter = NodeProcess(place.name, node_body, place.make, light=place.replayed)
    try:
        address = drafter.receive()
        drafter.send(now_s())
        round_trips_s = in_process("ping client", _round_trips_s, fleet, address, payloads_bytes, repeats)
        drafter.send("stop")
        drafter.receive()
    finally:
        drafter.end()
    return round_trips_s


def _round_trips_s(fleet: Fleet, address: str, payloads_bytes: Sequence[int], repeats: int) -> list[list[float]]:
    sockets = Sockets(connect={0: address}, max_bytes=max_bytes(fleet))
    connections = ConnectionTable(clients={0: ClientEnd(fleet, 0, time.time_ns())})
    _answered_s(connections, sockets, None)
    round_trips: list[list[float]] = [[] for _ in payloads_bytes]
    for repeat in range(-3, repeats):  # the first ones set up connections
        for times_s, size in zip(round_trips, payloads_bytes, strict=True):
            time.sleep(PAUSE_S)
            content = Content(distributions=np.zeros((1, size // PROBABILITY_BYTES), np.float16))
            sent_s = now_s()
            connections.carry_out(connections.post(Ping(0, repeat + 3), content, sent_s), sockets, sent_s)
            received_s = _answered_s(connections, sockets, Ping(0, repeat + 3))
            if repeat >= 0:
                times_s.append(received_s - sent_s)
    connections.carry_out(connections.close(now_s()), sockets, now_s())
    sockets.close()
    return round_trips


def _answered_s(connections: ConnectionTable, sockets: Sockets, ping: Ping | None) -> float:
    """Wait until this ping comes back, or for the Welcome; return when. TimeoutError if it does not."""
    until_s = now_s() + TIMEOUT_S
    while now_s() < until_s:
        connections.carry_out(connections.tick(now_s()), sockets, now_s())
        for frame in sockets.poll(TICK_S):
            for action in connections.receive(frame.port, frame.peer, frame.frame, frame.time_s):
                if isinstance(action, Opened) or (isinstance(action, Deliver) and action.event == ping):
                    return frame.time_s
    raise TimeoutError(f"no answer to {ping or 'a Hello'} within {TIMEOUT_S:.0f} s")
