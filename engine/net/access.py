"""Access to a server socket: allowed keys, and a limit on connections of strangers.

ZeroMQ ends a connection that has not finished its handshake in time, and refuses unknown keys in it. It does not limit
the number of such connections, as `ConnectionMonitor` does. That identifies a connection by its file descriptor, which
the socket's monitor reports.
"""

import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from specfleet.engine.net.keys import Keys, allowed_keys
from specfleet.fleet.errors import InputError

ZAP_DOMAIN = "specfleet"
REREAD_S = 1.0  # least time between two readings of the folder of allowed keys
MAX_STRANGERS = 128  # connections on TCP without a message; the oldest is closed for a newer one
UNANSWERED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class AllowedKeys:
    """Tells pyzmq's authenticator, in its thread, whether a key is allowed.

    An unknown key makes it read the folder again, so a key can be added while a node runs. Removing a key closes no
    connection.

    - `refused`: number of refusals. `newest`: the last refused keys, for the log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = allowed_keys(folder)
        self.read_s = time.monotonic()
        self.refused = 0
        self.newest: deque[str] = deque(maxlen=MAX_STRANGERS)

    def callback(self, _domain: str, key: bytes) -> bool:
        """Return whether a key (Z85) is allowed, as pyzmq asks."""
        if key not in self.names and time.monotonic() - self.read_s > REREAD_S:
            self.read_s = time.monotonic()
            with suppress(InputError):  # a file is being written, or holds no key: the keys that were read stay valid
                self.names = allowed_keys(self.folder)
        if key in self.names:
            return True
        self.refused += 1
        self.newest.append(key.decode())
        return False


class ConnectionMonitor:
    """Follows the connections of a server socket that is not bound yet.

    - `keys`: if given, the socket accepts only allowed keys, and strangers may knock.
    - `port`: TCP port of the socket, to be set when it is bound.
    - `gone`: peers with closed connections; the reader empties it.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", server: "zmq.Socket[bytes]", keys: Keys | None
    ) -> None:
        self.port = 0
        self.strangers: dict[int, object] = {}  # addresses by descriptor, the oldest first
        self.peers: dict[int, bytes] = {}  # routing ids by descriptor
        self.names: dict[bytes, str] = {}  # of peers, for the log
        self.gone: list[bytes] = []
        self.failed = self.too_many = 0  # greetings of another kind, connections closed for newer ones
        self.allowed = self.authenticator = None
        if keys is not None:
            assert keys.allowed is not None
            self.allowed = AllowedKeys(keys.allowed)
            self.authenticator = ThreadAuthenticator(context)
            self.authenticator.start()
            self.authenticator.configure_curve_callback(ZAP_DOMAIN, self.allowed)
            server.curve_server = True
            server.curve_secretkey = keys.secret
            server.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode())
            server.set(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an answer no peer is admitted
        self.events = server.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | UNANSWERED)

    @property
    def counts(self) -> Counter[str]:
        """What was refused or closed before any frame, by reason."""
        refused = 0 if self.allowed is None else self.allowed.refused
        return Counter(
            {
                "connections of unknown keys": refused,
                "greetings of another kind": self.failed,
                "connections too many": self.too_many,
            }
        )

    def take_events(self) -> None:
        """Note connections that begin and end."""
        while self.events.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self.events)
            fd = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._accepted(fd)
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                self.strangers.pop(fd, None)
                peer = self.peers.pop(fd, None)
                if peer is not None:
                    self.names.pop(peer, None)
                    self.gone.append(peer)
            else:
                self.failed += 1

    def note_message(self, peer: bytes, part: zmq.Frame) -> None:
        """Note a message of a peer."""
        fd = part.get(zmq.SRCFD)
        if self.peers.get(fd) == peer:
            return
        self.take_events()  # the descriptor may have been that of another connection
        self.strangers.pop(fd, None)
        self.peers[fd] = peer
        if self.allowed is not None:
            name = self.allowed.names.get(str(part.get("User-Id")).encode(), "that was removed")
            self.names[peer] = f"{part.get('Peer-Address')}, key {name}"

    def refused(self) -> list[str]:
        """Return lines on keys that were refused since the last call."""
        lines = []
        while self.allowed is not None and self.allowed.newest:
            lines.append(f"refused the key {self.allowed.newest.popleft()}: it is not in {self.allowed.folder}")
        return lines

    def close(self) -> None:
        """End the thread of the authenticator."""
        if self.authenticator is not None:
            self.authenticator.stop()

    def _accepted(self, fd: int) -> None:
        """Note a new connection; of too many strangers' ones, close the oldest."""
        if self.allowed is None:  # a socket file is reached by its user alone
            return
        with _duplicate(fd) as stream:
            address = _peer_address(stream, self.port)
        if address is None:  # it has ended already
            return
        if len(self.strangers) >= MAX_STRANGERS:
            self.too_many += 1
            self._close(next(iter(self.strangers)))
        self.strangers[fd] = address

    def _close(self, fd: int) -> None:
        """Close a connection, if the descriptor still belongs to it: descriptors are reused."""
        address = self.strangers.pop(fd)
        with _duplicate(fd) as stream:
            if stream is not None and _peer_address(stream, self.port) == address:
                with suppress(OSError):  # it has just ended
                    stream.shutdown(socket.SHUT_RDWR)  # ZeroMQ notices, and frees it


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
