"""Frames over ZeroMQ: a ROUTER for a node's server, a DEALER for each of its clients.

With keys all frames are encrypted, and a peer without an allowed key cannot send any. Without keys nodes talk through
socket files, which only their user can reach.
"""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import zmq
from zmq.utils.monitor import recv_monitor_message

from specfleet.engine.net.access import UNANSWERED, ConnectionMonitor
from specfleet.engine.net.actions import NO_PEER, SERVER_PORT, ReceivedFrame, Send
from specfleet.engine.net.addresses import FREE, TCP, check_address, prepared, remove, shown
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.keys import Keys
from specfleet.fleet.errors import InputError

QUEUE = 64  # frames that may wait for a peer, and of it
HANDSHAKE_MS = 3000  # for ZeroMQ's own greeting
HEARTBEAT_MS, SILENCE_MS = 1000, 3000
RECONNECT_MS = 100  # between two attempts to connect
LINGER_MS = 500
REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH
RECONNECT_S = 2.0  # a client that could not send for so long gets a new socket


class Sockets:
    """The sockets of a node. They belong to one thread, except for `wake`; only `poll` blocks.

    - `bind`: address of its server: tcp://HOST:PORT, port 0 for any free one, or ipc://PATH, `FREE` for a new file.
    - `connect`: addresses of its clients, by their ports.
    - `max_bytes`: of a frame; ZeroMQ closes connections with larger ones.
    - `keys`: without keys only socket files are allowed.
    - `log`: is called with lines on refused keys.

    InputError for an address that needs keys, or that cannot be bound, and for too many connections.
    """

    def __init__(
        self,
        bind: str | None = None,
        connect: Mapping[int, str] | None = None,
        max_bytes: int = -1,
        keys: Keys | None = None,
    ) -> None:
        self.addresses = dict(connect or {})
        for address in [*self.addresses.values(), *([] if bind is None else [bind])]:
            check_address(address, keys)
        self.max_bytes, self.keys = max_bytes, keys
        self.context = zmq.Context()
        self.sockets: dict[int, zmq.Socket[bytes]] = {}
        self.poller = zmq.Poller()
        self.unsent_s: dict[int, float] = {}  # since when a client cannot send
        self.client_monitors: dict[int, zmq.Socket[bytes]] = {}  # of clients with keys: why a greeting failed
        self.log: Callable[[str], None] = lambda _line: None
        self.explained: set[tuple[int, int]] = set()
        self.waking, self.woken = os.pipe()
        os.set_blocking(self.waking, False)
        os.set_blocking(self.woken, False)
        self.poller.register(self.waking, zmq.POLLIN)
        self.wakeable = True
        self.waking_or_closing = threading.Lock()  # once closed, the pipe's descriptor may be reused
        self.monitor: ConnectionMonitor | None = None
        self.bound = ""  # address of the server; its socket file is removed at the end
        self.has_folder = False  # whether the file has a folder of its own
        try:
            if bind is not None:
                self._bind(bind)
            for port in self.addresses:
                self._connect(port)
        except zmq.ZMQError as error:
            self.close()
            what = f"{len(self.addresses)} connections of one process"
            raise InputError(f"{what}: {error.strerror}; start its targets in several processes") from None
        except BaseException:
            self.close()
            raise

    @property
    def counts(self) -> Counter[str]:
        """What was refused or closed before any frame, by reason."""
        return Counter() if self.monitor is None else self.monitor.counts

    def poll(self, timeout_s: float) -> list[ReceivedFrame]:
        """Return the frames that have arrived; if there are none, wait for one or for `wake`, in whole milliseconds."""
        ready = dict(self.poller.poll(int(1000 * max(timeout_s, 0.0))))
        if self.monitor is not None:
            self.monitor.take_events()
        if self.waking in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.waking, 4096)
        return [frame for port, socket in self.sockets.items() if socket in ready for frame in self._read(port, socket)]

    def wake(self) -> None:
        """Let a waiting `poll` return; from any thread, also after `close`."""
        with self.waking_or_closing:
            if not self.wakeable:
                return
            try:  # noqa: SIM105  (between two drafts each microsecond counts)
                os.write(self.woken, b"\0")
            except BlockingIOError:  # it has been woken already
                pass

    def send(self, send: Send) -> bool:
        """Send a frame, without waiting; False if the peer is gone or its queue is full."""
        socket = self.sockets[send.port]
        try:
            if send.port == SERVER_PORT:
                socket.send(send.peer, zmq.SNDMORE | zmq.NOBLOCK)
            socket.send(send.frame, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            if send.port != SERVER_PORT:
                self.unsent_s.setdefault(send.port, now_s())
            return False
        self.unsent_s.pop(send.port, None)
        return True

    def tidy(self) -> None:
        """Reconnect, and log what was refused; to be called several times a second."""
        time_s = now_s()
        for port, since_s in list(self.unsent_s.items()):
            if time_s - since_s > RECONNECT_S:  # ZeroMQ gives up if another protocol answers
                self.unsent_s[port] = time_s
                self._disconnect(port)
                self._connect(port)
        for line in [] if self.monitor is None else self.monitor.refused():
            self.log(line)
        for port, monitor in self.client_monitors.items():
            self._log_refusals(port, monitor)

    def gone(self) -> list[bytes]:
        """Return the peers of the server that have disconnected since the last call."""
        if self.monitor is None:
            return []
        gone, self.monitor.gone = self.monitor.gone, []
        return gone

    def close(self) -> None:
        """Close everything, after at most half a second for frames that are being sent."""
        if self.monitor is not None:
            self.monitor.close()
        for socket in self.sockets.values():
            socket.disable_monitor()  # ZeroMQ would wait for a reader
        self.context.destroy(linger=LINGER_MS)
        remove(self.bound, self.has_folder)
        with self.waking_or_closing:
            self.wakeable = False
            os.close(self.waking)
            os.close(self.woken)

    def _bind(self, address: str) -> None:
        self.has_folder = address == FREE
        address = prepared(address)
        server = self._add(SERVER_PORT, zmq.ROUTER, address)
        server.set(zmq.ROUTER_MANDATORY, 1)
        self.monitor = ConnectionMonitor(self.context, server, self.keys)
        self.poller.register(self.monitor.events, zmq.POLLIN)
        try:
            server.bind(address)
        except zmq.ZMQError as error:
            raise InputError(f"{shown([address])}: {zmq.strerror(error.errno or 0)}; give another address") from None
        self.bound = server.getsockopt_string(zmq.LAST_ENDPOINT)
        if address.startswith(TCP):
            self.monitor.port = int(self.bound.rpartition(":")[2])

    def _connect(self, port: int) -> None:
        client = self._add(port, zmq.DEALER, self.addresses[port])
        client.set(zmq.IMMEDIATE, 1)  # frames do not wait for a connection
        if self.keys is not None:
            client.curve_secretkey, client.curve_publickey = self.keys.secret, self.keys.public
            client.curve_serverkey = self.keys.server(self.addresses[port])
            self.client_monitors[port] = client.get_monitor_socket(REFUSED | UNANSWERED)
        client.connect(self.addresses[port])

    def _disconnect(self, port: int) -> None:
        socket = self.sockets.pop(port)
        if port in self.client_monitors:
            socket.disable_monitor()
            self.client_monitors.pop(port).close(linger=0)
        self.poller.unregister(socket)
        socket.close(linger=0)

    def _log_refusals(self, port: int, monitor: "zmq.Socket[bytes]") -> None:
        """Log why a server refuses our key, or has another key than expected; once each."""
        assert self.keys is not None
        while monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event, name = recv_monitor_message(monitor)["event"], shown([self.addresses[port]])
            if (port, event) in self.explained:
                continue
            self.explained.add((port, event))
            if event == REFUSED:
                self.log(f"{name} refuses the key {self.keys.name}: it is not in its folder of allowed keys")
            else:
                self.log(f"{name} does not have the key that --server-key names, or is no drafter with keys")

    def _add(self, port: int, kind: int, address: str) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self.context.socket(kind)
        for option, value in (
            (zmq.MAXMSGSIZE, self.max_bytes), (zmq.SNDHWM, QUEUE), (zmq.RCVHWM, QUEUE), (zmq.LINGER, LINGER_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS), (zmq.HEARTBEAT_IVL, HEARTBEAT_MS), (zmq.HEARTBEAT_TIMEOUT, SILENCE_MS),
            (zmq.HEARTBEAT_TTL, SILENCE_MS), (zmq.RECONNECT_IVL, RECONNECT_MS), (zmq.TCP_KEEPALIVE, 1),
            (zmq.IPV6, int("[" in address)),
        ):  # fmt: skip
            socket.set(option, value)
        self.sockets[port] = socket
        self.poller.register(socket, zmq.POLLIN)
        return socket

    def _read(self, port: int, socket: "zmq.Socket[bytes]") -> Iterator[ReceivedFrame]:
        """Read the frames of a port, at most QUEUE; the frame of a message that has several is empty."""
        for _ in range(QUEUE):
            if not socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                return
            peer = socket.recv(zmq.NOBLOCK) if port == SERVER_PORT else NO_PEER
            part = socket.recv(zmq.NOBLOCK, copy=False)
            if self.monitor is not None and port == SERVER_PORT:
                self.monitor.note_message(peer, part)
            yield ReceivedFrame(port, peer, _only_frame(socket, part), now_s())


def _only_frame(socket: "zmq.Socket[bytes]", part: zmq.Frame) -> bytes:
    """Return the frame of a message; empty if it has several, which are skipped."""
    if not part.more:
        return part.bytes
    while socket.recv(zmq.NOBLOCK, copy=False).more:
        pass
    return b""
