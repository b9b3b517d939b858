"""The connections of a door, counted and held to limits that ZeroMQ does not know.

ZeroMQ bounds frames and queues of whole messages. It bounds neither how many connect, nor how long they say nothing,
nor how many parts a message has that never ends: so each connection is known by its descriptor, from the door's
monitor, and closed when it must be. The kernel says how many bytes have come in on it (Linux; elsewhere an endless
message is not noticed).
"""

import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

MOST_STRANGERS = 128  # connections of nobody whom the door knows; the oldest gives way to a newer one
STRANGER_S = 10.0  # after so long it must be somebody whom the door knows
DOOMED_S = 0.2  # from the decision to cut a peer until its connection is closed: it may read why
_BYTES_RECEIVED = 128  # where that stands in Linux's struct tcp_info, as 64 bits


@dataclass(slots=True)
class Connection:
    """`address`: of the other end. `since_s`: how long it has been a stranger's. `peer`, `user`: who spoke last.

    `bytes_then`: what had come in when something whole was last taken from it; `news`: whether anything was taken since
    the last look. `doomed_s`: when it is to be closed.
    """

    address: object
    since_s: float
    peer: bytes = b""
    user: str = ""
    bytes_then: int = 0
    news: bool = False
    doomed_s: float = float("inf")


class Connections:
    """All connections of a door, by descriptor. `port`: the door's; `most_bytes`: that may come in for one message."""

    def __init__(self, most_bytes: int, port: int = 0) -> None:
        self.port = port
        self.most_bytes = most_bytes
        self.open: dict[int, Connection] = {}
        self.counts: Counter[str] = Counter()

    def accepted(self, fd: int, known: Container[bytes], now_s: float) -> None:
        """Note a new connection; the oldest stranger's is closed if there are too many."""
        with _duplicate(fd) as stream:
            address = _peer_of(stream, self.port)
        if address is None:  # it is gone already
            return
        strangers = [each for each, connection in self.open.items() if connection.peer not in known]
        if len(strangers) >= MOST_STRANGERS:
            self.counts["connections too many"] += 1
            self.close(min(strangers, key=lambda each: (self.open[each].peer != b"", self.open[each].since_s)))
        self.open[fd] = Connection(address, now_s)

    def gone(self, fd: int) -> bytes:
        """Note that a connection is closed; return the peer that had it, if it has no other one."""
        connection = self.open.pop(fd, None)
        if connection is None or any(other.peer == connection.peer for other in self.open.values()):
            return b""
        return connection.peer

    def heard(self, fd: int, peer: bytes, user: str) -> bool:
        """Note that a peer has said something whole; False if its connection is about to be closed."""
        connection = self.open.get(fd)
        if connection is None:
            return True
        connection.peer, connection.user, connection.news = peer, user, True
        return connection.doomed_s == float("inf")

    def address_of(self, peer: bytes) -> str:
        """Return HOST:PORT of the other end of a peer's connection; empty if it is not known."""
        for connection in self.open.values():
            if connection.peer == peer and isinstance(connection.address, tuple):
                host, port = connection.address[:2]
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return ""

    def doom(self, peer: bytes, now_s: float) -> str:
        """Close the connections of a peer in a moment; return its user."""
        user = ""
        for connection in self.open.values():
            if connection.peer == peer:
                connection.doomed_s, user = min(connection.doomed_s, now_s + DOOMED_S), connection.user
        return user

    def close_of(self, peer: bytes) -> None:
        """Close the connections of a peer now."""
        for fd in [fd for fd, connection in self.open.items() if connection.peer == peer]:
            self.close(fd)

    def tidy(self, known: Container[bytes], now_s: float) -> list[str]:
        """Close what has to be closed; `known`: whom the door knows. To be called several times a second.

        Returns the users of those who sent a message without an end.
        """
        endless: list[str] = []
        for fd, connection in list(self.open.items()):
            if connection.peer in known:
                connection.since_s = now_s
            if connection.doomed_s <= now_s:
                self.close(fd)
            elif now_s - connection.since_s > STRANGER_S:
                self.counts["silent connections"] += 1
                self.close(fd)
            elif self._is_endless(fd, connection):
                self.counts["endless messages"] += 1
                endless.append(connection.user)
                self.close(fd)
        return endless

    def close(self, fd: int) -> None:
        """Close a connection, if it is still the one that was accepted: descriptors are used again."""
        connection = self.open.pop(fd, None)
        if connection is None:
            return
        with _duplicate(fd) as stream:
            if stream is not None and _peer_of(stream, self.port) == connection.address:
                with suppress(OSError):  # it has just ended by itself
                    stream.shutdown(socket.SHUT_RDWR)  # ZeroMQ sees that it ended, and forgets it

    def _is_endless(self, fd: int, connection: Connection) -> bool:
        """Whether more has come in than a message may have, since something whole was taken."""
        with _duplicate(fd) as stream:
            received = 0 if stream is None else _bytes_received(stream)
        if connection.news:
            connection.bytes_then, connection.news = received, False
        return received - connection.bytes_then > self.most_bytes


@contextmanager
def _duplicate(fd: int) -> Iterator[socket.socket | None]:
    """Yield a descriptor of our own of the same connection, for a moment; None if it is no socket any more."""
    try:
        own = os.dup(fd)
    except OSError:
        yield None
        return
    try:
        stream = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        yield None
        return
    with stream:
        yield stream


def _peer_of(stream: socket.socket | None, port: int) -> object:
    """Return the address of the other end; None if it is no connection of that port's."""
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
