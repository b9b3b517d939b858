"""Frames over ZeroMQ: one ROUTER for a node's door, a DEALER for each of its lines.

All sockets belong to the thread that polls and sends. ZeroMQ's own background thread does
what takes the network's time.
"""

import contextlib
import os
import select
from collections.abc import Mapping

import zmq

from engine.runtime.actions import ANYBODY, DOOR, Send
from engine.runtime.clock import now_s
from engine.runtime.transport import Arrived
from fleet.errors import InputError

QUEUE = 64  # frames that may wait for a peer, or from it
HANDSHAKE_MS = 3000  # for ZeroMQ's own greeting: who says nothing is not kept
HEARTBEAT_MS, SILENCE_MS = 1000, 3000
RECONNECT_MS, SLOWEST_RECONNECT_MS = 100, 1000
LINGER_MS = 500


class Sockets:
    """The sockets of a node. `bind`: the door's address, tcp://HOST:PORT, port 0 for any; `connect`: of each line.

    `most_bytes`: of a frame; who sends more is cut by ZeroMQ before it is read. InputError if the address cannot be
    bound.
    """

    def __init__(self, bind: str | None = None, connect: Mapping[int, str] | None = None, most_bytes: int = -1) -> None:
        self.context = zmq.Context()
        self.sockets: dict[int, zmq.Socket[bytes]] = {}
        self.ports: dict[int, int] = {}  # a port of the node by the file descriptor that tells of news
        self.pending: set[int] = set()  # ports whose news may have been told already
        self.waking, self.woken = os.pipe()
        os.set_blocking(self.waking, False)
        os.set_blocking(self.woken, False)
        if bind is not None:
            door = self._add(DOOR, zmq.ROUTER, most_bytes)
            door.set(zmq.ROUTER_MANDATORY, 1)
            try:
                door.bind(bind)
            except zmq.ZMQError as error:
                self.close()
                raise InputError(f"{bind}: {error.strerror}; give another port or address") from None
        for port, address in (connect or {}).items():
            line = self._add(port, zmq.DEALER, most_bytes)
            line.set(zmq.IMMEDIATE, 1)  # nothing waits for a peer that is not there
            line.connect(address)

    @property
    def bound_port(self) -> int:
        """The TCP port of the door."""
        return int(self.sockets[DOOR].getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def poll(self, timeout_s: float) -> list[Arrived]:
        """As `Transport.poll`. The time is exact to some microseconds, as ZeroMQ's own poll is not."""
        arrived = self._read(self.pending)
        if arrived:
            return arrived
        ready, _, _ = select.select([self.waking, *self.ports], [], [], max(timeout_s, 0.0))
        if self.waking in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.waking, 4096)
        # The descriptors tell of changes only once; without any, all sockets are looked at.
        return self._read(
            {self.ports[ready] for ready in ready if ready != self.waking} if ready else set(self.sockets)
        )

    def wake(self) -> None:
        """As `Transport.wake`."""
        with contextlib.suppress(BlockingIOError):  # it is awake for as many reasons as fit into a pipe
            os.write(self.woken, b"\0")

    def send(self, send: Send) -> bool:
        """As `Transport.send`."""
        self.pending.add(send.port)
        socket = self.sockets[send.port]
        try:
            if send.port == DOOR:
                socket.send(send.peer, zmq.SNDMORE | zmq.NOBLOCK)
            socket.send(send.frame, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True

    def cut(self, peer: bytes) -> None:
        """As `Transport.cut`."""

    def close(self) -> None:
        """As `Transport.close`."""
        self.context.destroy(linger=LINGER_MS)
        os.close(self.waking)
        os.close(self.woken)

    def _add(self, port: int, kind: int, most_bytes: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        for option, value in (
            (zmq.MAXMSGSIZE, most_bytes), (zmq.SNDHWM, QUEUE), (zmq.RCVHWM, QUEUE), (zmq.LINGER, LINGER_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS), (zmq.HEARTBEAT_IVL, HEARTBEAT_MS), (zmq.HEARTBEAT_TIMEOUT, SILENCE_MS),
            (zmq.HEARTBEAT_TTL, SILENCE_MS), (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, SLOWEST_RECONNECT_MS), (zmq.TCP_KEEPALIVE, 1),
        ):  # fmt: skip
            socket.set(option, value)
        self.sockets[port] = socket
        self.ports[socket.getsockopt(zmq.FD)] = port
        self.pending.add(port)
        return socket

    def _read(self, ports: set[int]) -> list[Arrived]:
        """Take everything that waits in the sockets of some ports, up to a queue of each."""
        arrived: list[Arrived] = []
        for port in list(ports):
            socket, left = self.sockets[port], QUEUE
            while left and socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                parts = socket.recv_multipart(zmq.NOBLOCK)
                left -= 1
                peer = parts.pop(0) if port == DOOR else ANYBODY
                frame = parts[0] if len(parts) == 1 else b""  # of several parts none is ours
                arrived.append(Arrived(port, peer, frame, now_s()))
            if left:
                self.pending.discard(port)
            else:
                self.pending.add(port)
        return arrived
