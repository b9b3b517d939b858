"""Access to a server socket: authentication by key, and limits on connections.

ZeroMQ limits the size of a frame and the queues of whole messages. It does not limit the number of connections, the
time that one stays silent, or the parts of a message. `ConnectionMonitor` closes connections that exceed such limits.
It identifies a connection by its file descriptor, which the socket's monitor reports. The number of bytes received on a
connection comes from the kernel (Linux only: elsewhere a message of endless parts is not noticed).
"""

import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from specfleet.engine.net.keys import Keys, allowed_keys
from specfleet.fleet.errors import InputError

ZAP_ADDRESS = "inproc://zeromq.zap.01"  # fixed by ZeroMQ's specification 27
ZAP_DOMAIN = b"specfleet"
BAN_S = 60.0  # how long the key of a peer that was cut is refused
REREAD_S = 1.0  # least time between two readings of the folder of allowed keys
MAX_STRANGERS = 128  # connections without an accepted peer; the oldest is closed for a newer one
STRANGER_S = 10.0  # how long a connection may go without an accepted peer
CUT_S = 0.2  # from the decision to cut a peer until its connection is closed, so that it can read the reason
SLACK_BYTES = 1 << 16  # for headers, heartbeats and greetings between two messages
_BYTES_RECEIVED = 128  # offset of that number, 64 bits, in Linux's struct tcp_info
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class KeyAuth:
    """Answers the authentication requests of one ZeroMQ context.

    It must exist before the server socket is bound. An unknown key makes it read the folder of allowed keys again, so a
    key can be added while a node runs. Removing a key closes no connection.

    - `keys`: with the folder of allowed keys.
    - `counts`: refusals are added here.
    - `log`: is called with a line for each refusal.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", keys: Keys, counts: Counter[str], log: Callable[[str], None]
    ) -> None:
        assert keys.allowed is not None
        self.folder: Path = keys.allowed
        self.names = allowed_keys(self.folder)
        self.read_s = -1e9
        self.banned_until_s: dict[str, float] = {}
        self.counts = counts
        self.log = log
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(ZAP_ADDRESS)

    def answer(self, now_s: float) -> None:
        """Answer all waiting requests."""
        while self.socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            version, number, _domain, address, _routing_id, mechanism, *credentials = self.socket.recv_multipart()
            key = z85.encode(credentials[0]) if mechanism == b"CURVE" else b""
            name = self._name_of(key, now_s)
            if not name:
                self._refuse(address.decode(errors="replace"), key)
            self.socket.send_multipart([version, number, b"200" if name else b"400", b"", name.encode(), b""])

    def ban(self, name: str, now_s: float) -> None:
        """Refuse the key of that name for BAN_S."""
        self.banned_until_s[name] = now_s + BAN_S

    def _name_of(self, key: bytes, now_s: float) -> str:
        """Return the name of an allowed key; empty if it is unknown or banned."""
        if key not in self.names and now_s - self.read_s > REREAD_S:
            self.read_s = now_s
            with suppress(InputError):  # a file is being written, or holds no key: the keys that were read stay valid
                self.names = allowed_keys(self.folder)
        name = self.names.get(key, "")
        return "" if self.banned_until_s.get(name, 0.0) > now_s else name

    def _refuse(self, address: str, key: bytes) -> None:
        name = self.names.get(key)
        self.counts["of known peers, kept out" if name else "of unknown keys"] += 1
        why = f"{name} is kept out for {BAN_S:.0f} s" if name else f"its key {key.decode()} is not in {self.folder}"
        self.log(f"refused {address}: {why}")


@dataclass(slots=True)
class Connection:
    """An accepted TCP connection.

    - `address`: of the other end. `peer`, `user`: routing id and key name of its last message.
    - `since_s`: since when it has had no accepted peer.
    - `bytes_then`: bytes received when its last message was taken; `has_news`: whether one was taken since.
    - `close_at_s`: when it is closed.
    """

    address: object
    since_s: float
    peer: bytes = b""
    user: str = ""
    bytes_then: int = 0
    has_news: bool = False
    close_at_s: float = float("inf")


class ConnectionMonitor:
    """Follows the connections of a server socket that is not bound yet, and closes those that exceed a limit.

    - `keys`: if given, the socket accepts only allowed keys.
    - `max_bytes`: of one message. `log`: is called with a line for each refused key.
    - `port`: TCP port of the socket, to be set when it is bound.
    - `gone`: peers with closed connections; the reader empties it.
    - `counts`: what was refused or closed, and why.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        server: "zmq.Socket[bytes]",
        keys: Keys | None,
        max_bytes: int,
        log: Callable[[str], None],
    ) -> None:
        self.port = 0
        self.max_bytes = 2 * max_bytes + SLACK_BYTES
        self.open: dict[int, Connection] = {}
        self.gone: list[bytes] = []
        self.counts: Counter[str] = Counter()
        self.auth = None if keys is None else KeyAuth(context, keys, self.counts, log)
        if keys is not None:
            server.curve_server = True
            server.curve_secretkey = keys.secret
            server.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
            server.set(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an answer no peer is admitted
        self.events = server.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _FAILED)
        watched = [self.events] if self.auth is None else [self.events, self.auth.socket]
        self.descriptors = [int(each.getsockopt(zmq.FD)) for each in watched]

    def take_events(self, accepted: Container[bytes], now_s: float) -> None:
        """Authenticate, and note connections that begin and end. `accepted`: the accepted peers."""
        if self.auth is not None:
            self.auth.answer(now_s)
        while self.events.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self.events)
            fd = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._accepted(fd, accepted, now_s)
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self._disconnected(fd)
            elif event["event"] != zmq.EVENT_HANDSHAKE_FAILED_AUTH:  # those are counted by KeyAuth
                self.counts["greetings of another kind"] += 1

    def note_message(self, fd: int, peer: bytes, user: str) -> bool:
        """Note a whole message of a peer; False if its connection is about to be closed."""
        connection = self.open.get(fd)
        if connection is None:
            return True
        connection.peer, connection.user, connection.has_news = peer, user, True
        return connection.close_at_s == float("inf")

    def address_of(self, peer: bytes) -> str:
        """Return HOST:PORT of the other end of a peer's connection; empty if unknown."""
        for connection in self.open.values():
            if connection.peer == peer and isinstance(connection.address, tuple):
                host, port = connection.address[:2]
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return ""

    def cut(self, peer: bytes, now_s: float) -> None:
        """Close the connections of a peer after CUT_S, and ban its key."""
        for connection in self._connections_of(peer).values():
            connection.close_at_s = min(connection.close_at_s, now_s + CUT_S)
            self._ban(connection.user, now_s)

    def close_peer(self, peer: bytes) -> None:
        """Close the connections of a peer now; it may connect again."""
        for fd in self._connections_of(peer):
            self._close(fd)

    def tidy(self, accepted: Container[bytes], now_s: float) -> None:
        """Close what exceeds a limit; to be called several times a second. `accepted`: the accepted peers."""
        self.take_events(accepted, now_s)
        for fd, connection in list(self.open.items()):
            if connection.peer in accepted:
                connection.since_s = now_s
            if connection.close_at_s <= now_s:
                self._close(fd)
            elif now_s - connection.since_s > STRANGER_S:
                self.counts["silent connections"] += 1
                self._close(fd)
            elif self._is_endless(fd, connection):
                self.counts["endless messages"] += 1
                self._close(fd)
                self._ban(connection.user, now_s)

    def _connections_of(self, peer: bytes) -> dict[int, Connection]:
        return {fd: connection for fd, connection in self.open.items() if connection.peer == peer}

    def _ban(self, user: str, now_s: float) -> None:
        if user and self.auth is not None:
            self.auth.ban(user, now_s)

    def _accepted(self, fd: int, accepted: Container[bytes], now_s: float) -> None:
        """Note a new connection; with too many strangers, close the oldest one's."""
        with _duplicate(fd) as stream:
            address = _peer_address(stream, self.port)
        if address is None:  # it has ended already
            return
        strangers = [each for each, connection in self.open.items() if connection.peer not in accepted]
        if len(strangers) >= MAX_STRANGERS:
            self.counts["connections too many"] += 1
            self._close(min(strangers, key=lambda each: (self.open[each].peer != b"", self.open[each].since_s)))
        self.open[fd] = Connection(address, now_s)

    def _disconnected(self, fd: int) -> None:
        """Note an ended connection; its peer is gone if it has no other one."""
        connection = self.open.pop(fd, None)
        if connection is not None and connection.peer and not self._connections_of(connection.peer):
            self.gone.append(connection.peer)

    def _close(self, fd: int) -> None:
        """Close a connection, if the descriptor still belongs to it: descriptors are reused."""
        connection = self.open.pop(fd, None)
        if connection is None:
            return
        with _duplicate(fd) as stream:
            if stream is not None and _peer_address(stream, self.port) == connection.address:
                with suppress(OSError):  # it has just ended
                    stream.shutdown(socket.SHUT_RDWR)  # ZeroMQ notices, and frees it

    def _is_endless(self, fd: int, connection: Connection) -> bool:
        """Whether more bytes have arrived since the last message than a message may have."""
        with _duplicate(fd) as stream:
            received = 0 if stream is None else _bytes_received(stream)
        if connection.has_news:
            connection.bytes_then, connection.has_news = received, False
        return received - connection.bytes_then > self.max_bytes


@contextmanager
def _duplicate(fd: int) -> Iterator[socket.socket | None]:
    """Yield a duplicate of a connection's descriptor, of whatever family; None if it is closed."""
    try:
        stream = socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        yield None
        return
    with stream:
        yield stream


def _peer_address(stream: socket.socket | None, port: int) -> object:
    """Return the address of the other end; None if it is no connection of that local port."""
    try:
        return stream.getpeername() if stream is not None and stream.getsockname()[1] == port else None
    except OSError:
        return None


def _bytes_received(stream: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    try:
        info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED + 8)
    except OSError:
        return 0
    return int(struct.unpack_from("Q", info, _BYTES_RECEIVED)[0]) if len(info) >= _BYTES_RECEIVED + 8 else 0
