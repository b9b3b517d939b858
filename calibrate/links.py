"""Link times from round trips: pings of several sizes to a drafter node, which answers from its worker.

Both clocks' readings are never compared; one way is half a round trip.
"""

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import msgspec
import zmq

from engine.runtime.clock import now_s
from engine.runtime.process import NodeProcess
from engine.runtime.serve import start_drafter
from engine.runtime.transport import Ping, connect, parse
from fleet.scenario.settled import Fleet

PAUSE_S = 0.002  # between pings, so that the node's threads have gone to sleep as they do between requests
TIMEOUT_MS = 10_000


def measure_round_trips(fleet: Fleet, payloads_bytes: Sequence[int], repeats: int) -> list[list[float]]:
    """Return round-trip times in seconds for each payload, each the same size both ways."""
    drafter, port, _ = start_drafter(fleet)
    client = NodeProcess("ping client", _ping_body, port, list(payloads_bytes), repeats)
    try:
        drafter.send(now_s())
        round_trips: list[list[float]] = client.receive()
        drafter.send("stop")
        drafter.receive()
    finally:
        client.end()
        drafter.end()
    return round_trips


def _ping_body(_pipe: Connection, port: int, payloads_bytes: list[int], repeats: int) -> list[list[float]]:
    context = zmq.Context()
    channel = connect(context, "tcp://127.0.0.1", port, target=0)
    round_trips: list[list[float]] = [[] for _ in payloads_bytes]
    for repeat in range(-3, repeats):  # the first ones set up connections
        for times_s, size in zip(round_trips, payloads_bytes, strict=True):
            time.sleep(PAUSE_S)
            sent_s = now_s()
            channel.ping(repeat + 3, bytes(size))
            if not channel.receiving.poll(TIMEOUT_MS):
                raise TimeoutError(f"no answer to a ping of {size} bytes within {TIMEOUT_MS} ms")
            answer, _ = parse(channel.receiving.recv_multipart())
            received_s = now_s()
            if answer != Ping(repeat + 3):
                raise msgspec.ValidationError(f"expected ping {repeat + 3} back, got {answer}")
            if repeat >= 0:
                times_s.append(received_s - sent_s)
    context.destroy()
    return round_trips
