"""The bandwidth of a link from round trips: frames of several sizes to another process of this host, and back.

One way is half a round trip, so two clocks are never compared.
"""

import time
from collections.abc import Sequence

import numpy as np

from specfleet.engine.launch.bodies import LauncherPipe
from specfleet.engine.launch.processes import NodeProcess
from specfleet.engine.net.actions import NO_PEER, SERVER_PORT, Send
from specfleet.engine.net.addresses import FREE
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.content import Content
from specfleet.engine.net.frames import pack, parse
from specfleet.engine.net.handshake import Alive
from specfleet.engine.net.sockets import Sockets
from specfleet.fleet.stations.payload import PROBABILITY_BYTES

PAUSE_S = 0.002  # between frames, so that threads have gone to sleep as they do between requests
TIMEOUT_S = 10.0


def measure_round_trips(payloads_bytes: Sequence[int], repeats: int) -> list[list[float]]:
    """Return round-trip times in seconds for each payload, each the same size both ways."""
    round_trips: list[list[float]] = [[] for _ in payloads_bytes]
    echo = NodeProcess("echo", _echo, light=True)
    try:
        sockets = Sockets(connect={0: echo.receive()})
        for repeat in range(-3, repeats):  # the first ones set up the connection
            for times_s, size in zip(round_trips, payloads_bytes, strict=True):
                time.sleep(PAUSE_S)
                content = Content(distributions=np.zeros((1, size // PROBABILITY_BYTES), np.float16))
                trip_s = _round_trip_s(sockets, content)
                if repeat >= 0:
                    times_s.append(trip_s)
        sockets.close()
    finally:
        echo.end()
    return round_trips


def _round_trip_s(sockets: Sockets, content: Content) -> float:
    """Send a frame, and return when it is back; TimeoutError if it is not."""
    sent_s = now_s()
    while not sockets.send(Send(0, NO_PEER, pack(Alive(), content))):
        sent_s = now_s()  # not connected yet
    if not (frames := sockets.poll(TIMEOUT_S)):
        raise TimeoutError(f"no answer within {TIMEOUT_S:.0f} s")
    parse(frames[0].frame)
    return now_s() - sent_s


def _echo(pipe: LauncherPipe) -> None:
    """Send all frames back, until the launcher ends this process."""
    sockets = Sockets(FREE)
    pipe.send(("ready", sockets.bound))
    while True:
        for frame in sockets.poll(TIMEOUT_S):
            sockets.send(Send(SERVER_PORT, frame.peer, pack(*parse(frame.frame))))
