"""A client of ZeroMQ's wire protocol (ZMTP 3, without keys) by hand, which breaks the protocol on purpose."""

import socket
import time

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL" + bytes(16) + b"\0" + bytes(31)
_READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
_IDENTITY = b"\x08Identity"
MORE = 1


def connected(port: int, greets: bool = True, claims: bytes = b"") -> socket.socket:
    """A connection to a server of this host; after ZeroMQ's greeting, or silent. `claims`: a routing id, if any."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=30.0)
    try:
        if greets:
            _greet(stream, claims)
    except BaseException:
        stream.close()
        raise
    return stream


def _greet(stream: socket.socket, claims: bytes) -> None:
    """Exchange greetings and metadata."""
    stream.sendall(GREETING)
    _read(stream, len(GREETING))
    ready = _READY + (_IDENTITY + len(claims).to_bytes(4, "big") + claims if claims else b"")
    stream.sendall(bytes([4, len(ready)]) + ready)
    flags, size = _read(stream, 2)
    assert flags == 4
    _read(stream, size)


def framed(part: bytes, flags: int = 0) -> bytes:
    """A part of a message as bytes on the wire."""
    return bytes([flags | 2]) + len(part).to_bytes(8, "big") + part


def is_closed(stream: socket.socket, within_s: float = 30.0) -> bool:
    """Whether the other end closes the connection, after any last frames."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        stream.settimeout(max(until_s - time.monotonic(), 0.01))
        try:
            if not stream.recv(1 << 16):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


def _read(stream: socket.socket, count: int) -> bytes:
    read = b""
    while len(read) < count:
        piece = stream.recv(count - len(read))
        assert piece, "the other end has closed the connection"
        read += piece
    return read
