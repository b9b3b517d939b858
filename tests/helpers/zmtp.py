"""Bytes of ZeroMQ's wire protocol (ZMTP 3, without keys) by hand, for strangers at a port."""

import socket
import time

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL" + bytes(16) + b"\0" + bytes(31)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


def framed(part: bytes) -> bytes:
    """A message of one part as bytes on the wire."""
    return bytes([2]) + len(part).to_bytes(8, "big") + part


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
