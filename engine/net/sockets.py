"""Frames over ZeroMQ: one ROUTER for a node's door, a DEALER for each of its lines.

All sockets belong to the thread that polls and sends. ZeroMQ's own background thread does what takes the network's
time. With keys everything is encrypted, and nobody whose key is not allowed gets as far as a frame.
"""

import contextlib
import ctypes
import os
import select
import threading
from collections import Counter
from collections.abc import Container, Mapping

import zmq
from zmq.utils.monitor import recv_monitor_message

from engine.net.access import ConnectionMonitor
from engine.net.actions import ANYBODY, DOOR, Arrived, Send
from engine.net.clock import now_s
from engine.net.keys import Keys, check_door, check_line
from fleet.errors import InputError

QUEUE = 64  # frames that may wait for a peer, or from it
HANDSHAKE_MS = 3000  # for ZeroMQ's own greeting: who says nothing is not kept
HEARTBEAT_MS, SILENCE_MS = 1000, 3000
RECONNECT_MS, SLOWEST_RECONNECT_MS = 100, 1000
LINGER_MS = 500
REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH
UNANSWERED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
RECALL_S = 2.0  # a line that could not send for so long is made anew


class Sockets:
    """The sockets of a node. `bind`: the door's address, tcp://HOST:PORT, port 0 for any; `connect`: of each line.

    `most_bytes`: of a frame; who sends more is cut by ZeroMQ before it is read. `keys`: without any, no address beyond
    this host is served or called. InputError if that is asked for, or if the address cannot be bound. `recall_s`: how
    long it may take at most until a line calls again that could not reach anybody.
    """

    def __init__(
        self,
        bind: str | None = None,
        connect: Mapping[int, str] | None = None,
        most_bytes: int = -1,
        keys: Keys | None = None,
        recall_s: float = SLOWEST_RECONNECT_MS / 1000,
    ) -> None:
        self.slowest_ms = max(RECONNECT_MS, min(SLOWEST_RECONNECT_MS, int(1000 * min(recall_s, 1.0))))
        if bind is not None:
            check_door(_host(bind), keys)
        self.addresses = dict(connect or {})
        for address in self.addresses.values():
            check_line(_host(address), keys)
        self.most_bytes, self.keys = most_bytes, keys
        self.context = zmq.Context()
        self.sockets: dict[int, zmq.Socket[bytes]] = {}
        self.ports: dict[int, int] = {}  # a port of the node by the file descriptor that tells of news
        self.pending: set[int] = set()  # ports whose news may have been told already
        self.unsent_s: dict[int, float] = {}  # since when nothing can be sent on a line
        self.line_monitors: dict[int, zmq.Socket[bytes]] = {}  # of lines with keys: why a greeting failed
        self.explained: set[tuple[int, int]] = set()
        self.known: Container[bytes] = ()
        self.waking, self.woken = os.pipe()
        os.set_blocking(self.waking, False)
        os.set_blocking(self.woken, False)
        self.wakeable = True
        self.waking_or_closing = threading.Lock()  # the pipe's number may be another file's as soon as it is closed
        self.monitor: ConnectionMonitor | None = None
        try:
            if bind is not None:
                self._bind(bind)
            for port in self.addresses:
                self._connect(port)
        except BaseException:
            self.close()
            raise

    @property
    def counts(self) -> Counter[str]:
        """What was refused or closed at the door before anything was decoded."""
        return Counter() if self.monitor is None else self.monitor.counts

    @property
    def bound_port(self) -> int:
        """The TCP port of the door."""
        return int(self.sockets[DOOR].getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def poll(self, timeout_s: float) -> list[Arrived]:
        """As `Transport.poll`. The time is exact to some microseconds, as ZeroMQ's own poll is not."""
        if self.monitor is not None:
            self.monitor.take_events(self.known, now_s())
        arrived = self._read(self.pending)
        if arrived:
            return arrived
        guarded = [] if self.monitor is None else self.monitor.descriptors
        ready, _, _ = select.select([self.waking, *guarded, *self.ports], [], [], max(timeout_s, 0.0))
        if guarded and ready:
            assert self.monitor is not None
            self.monitor.take_events(self.known, now_s())
            ready = [each for each in ready if each not in guarded]
        if self.waking in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.waking, 4096)
        # The descriptors tell of changes only once; without any, all sockets are looked at.
        return self._read(
            {self.ports[ready] for ready in ready if ready != self.waking} if ready else set(self.sockets)
        )

    def wake(self) -> None:
        """As `Transport.wake`."""
        with self.waking_or_closing:
            if not self.wakeable:
                return
            try:  # noqa: SIM105  (between two drafts each microsecond counts)
                os.write(self.woken, b"\0")
            except BlockingIOError:  # it is awake for as many reasons as fit into a pipe
                pass

    def send(self, send: Send) -> bool:
        """As `Transport.send`."""
        self.pending.add(send.port)
        socket = self.sockets[send.port]
        try:
            if send.port == DOOR:
                socket.send(send.peer, zmq.SNDMORE | zmq.NOBLOCK)
            socket.send(send.frame, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            if self.monitor is not None and send.port == DOOR:
                self.monitor.close_peer(send.peer)
            else:
                self.unsent_s.setdefault(send.port, now_s())
            return False
        self.unsent_s.pop(send.port, None)
        return True

    def address_of(self, peer: bytes) -> str:
        """As `Transport.address_of`."""
        return "" if self.monitor is None else self.monitor.address_of(peer)

    def cut(self, peer: bytes) -> None:
        """As `Transport.cut`: in a moment, so that it may read why. Its key is kept out for a while."""
        if self.monitor is not None:
            self.monitor.cut(peer, now_s())

    def tidy(self, known: Container[bytes]) -> Counter[str]:
        """As `Transport.tidy`."""
        time_s = now_s()
        self.known = known
        for port, since_s in list(self.unsent_s.items()):
            if port != DOOR and time_s - since_s > RECALL_S:  # ZeroMQ gives up where the other end is none of ours
                self.unsent_s[port] = time_s
                self._disconnect(port)
                self._connect(port)
        told = Counter[str]() if self.monitor is None else self.monitor.tidy(known, time_s)
        told.update(line for port, monitor in self.line_monitors.items() for line in self._why_not(port, monitor))
        return told

    def gone(self) -> list[bytes]:
        """As `Transport.gone`."""
        if self.monitor is None:
            return []
        gone, self.monitor.gone = self.monitor.gone, []
        return gone

    def close(self) -> None:
        """As `Transport.close`."""
        for socket in self.sockets.values():
            socket.disable_monitor()  # nobody reads it any more, and ZeroMQ would wait for that
        self.context.destroy(linger=LINGER_MS)
        with self.waking_or_closing:
            self.wakeable = False
            os.close(self.waking)
            os.close(self.woken)

    def _bind(self, address: str) -> None:
        _scatter_ids()
        door = self._add(DOOR, zmq.ROUTER)
        door.set(zmq.ROUTER_MANDATORY, 1)
        self.monitor = ConnectionMonitor(self.context, door, self.keys, self.most_bytes)
        try:
            door.bind(address)
        except zmq.ZMQError as error:
            raise InputError(f"{address}: {error.strerror}; give another port or address") from None
        self.monitor.port = self.bound_port

    def _connect(self, port: int) -> None:
        line = self._add(port, zmq.DEALER)
        line.set(zmq.IMMEDIATE, 1)  # nothing waits for a peer that is not there
        if self.keys is not None:
            line.curve_secretkey, line.curve_publickey = self.keys.secret, self.keys.public
            line.curve_serverkey = self.keys.server(self.addresses[port])
            self.line_monitors[port] = line.get_monitor_socket(REFUSED | UNANSWERED)
        line.connect(self.addresses[port])

    def _disconnect(self, port: int) -> None:
        socket = self.sockets.pop(port)
        if port in self.line_monitors:
            socket.disable_monitor()
            self.line_monitors.pop(port).close(linger=0)
        del self.ports[socket.getsockopt(zmq.FD)]
        socket.close(linger=0)

    def _why_not(self, port: int, monitor: "zmq.Socket[bytes]") -> list[str]:
        """Say why the other end of a line does not take the key, or does not have the one that it should; once each."""
        assert self.keys is not None
        told: list[str] = []
        while monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event, name = recv_monitor_message(monitor)["event"], self.addresses[port].removeprefix("tcp://")
            if (port, event) in self.explained:
                continue
            self.explained.add((port, event))
            if event == REFUSED:
                told.append(f"{name} refuses the key {self.keys.name}: it is not in its folder of allowed keys")
            else:
                told.append(f"{name} does not have the key that --server-key names, or is no drafter with keys")
        return told

    def _add(self, port: int, kind: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        for option, value in (
            (zmq.MAXMSGSIZE, self.most_bytes), (zmq.SNDHWM, QUEUE), (zmq.RCVHWM, QUEUE), (zmq.LINGER, LINGER_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS), (zmq.HEARTBEAT_IVL, HEARTBEAT_MS), (zmq.HEARTBEAT_TIMEOUT, SILENCE_MS),
            (zmq.HEARTBEAT_TTL, SILENCE_MS), (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, self.slowest_ms), (zmq.TCP_KEEPALIVE, 1),
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
                left -= 1
                came = self._frame_of_door(socket) if port == DOOR else Arrived(port, ANYBODY, _frame(socket), now_s())
                if came is not None:
                    arrived.append(came)
            if left:
                self.pending.discard(port)
            else:
                self.pending.add(port)
        return arrived

    def _frame_of_door(self, door: "zmq.Socket[bytes]") -> Arrived | None:
        """Take what has come in at the door; None from a peer that is being cut."""
        assert self.monitor is not None
        peer = door.recv(zmq.NOBLOCK)
        part = door.recv(zmq.NOBLOCK, copy=False)
        user = str(part.get("User-Id")) if self.keys is not None else ""
        heeded = self.monitor.note_message(part.get(zmq.SRCFD), peer, user)
        if part.more:  # none of ours: all frames are whole messages
            self.monitor.close_peer(peer)
            _skip(door)
            return Arrived(DOOR, peer, b"", now_s(), user) if heeded else None
        return Arrived(DOOR, peer, part.bytes, now_s(), user) if heeded else None


def _frame(line: "zmq.Socket[bytes]") -> bytes:
    """Return the frame that has come in by a line; empty if it is not the only one of its message."""
    part = line.recv(zmq.NOBLOCK, copy=False)
    if part.more:
        _skip(line)
        return b""
    return part.bytes


def _skip(socket: "zmq.Socket[bytes]") -> None:
    """Skip what is left of a message."""
    while socket.recv(zmq.NOBLOCK, copy=False).more:
        pass


def _scatter_ids() -> None:
    """Let the routing ids that a door gives begin anywhere.

    libzmq ends its process where an id that it gives to a connection was claimed by another one. It draws the first id
    with the C library's rand(), which nobody seeds, and counts on from there: whoever connects could know it.
    """
    ctypes.CDLL(None).srand(ctypes.c_uint(int.from_bytes(os.urandom(4), "little")))


def _host(address: str) -> str:
    return address.removeprefix("tcp://").rpartition(":")[0]
