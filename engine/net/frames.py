"""Messages as bytes, one frame each; a frame is parsed without trust in its sender.

A frame is a header of fixed size (magic, version, sizes and shapes), the bodies, and the envelope (MessagePack of a
typed struct). Bodies are raw little-endian numbers: token ids and nodes of a tree as int32, draft distributions and
hidden states as float16. Nothing is unpickled, and sizes in the header are checked against the frame before anything is
allocated.
"""

import struct

import msgspec
import numpy as np

from specfleet.engine.net.content import DRAWN, NOTHING, Content
from specfleet.engine.net.handshake import Control
from specfleet.fleet.stations.messages import Message

MAGIC = b"sf"
VERSION = 6  # of frames and their content; both ends must have the same
HEADER = struct.Struct("<2sBBIIIIIIId")
# magic, version, rule, bytes of the envelope; then numbers of tokens and nodes (0: no tree; else one more than there
# are), rows and columns of distributions and of hidden states (0 without them); when the message is due by the host's
# clock, if its link is emulated (`links.py`), else 0.
DUE = struct.Struct("<d")
MAX_ENVELOPE_BYTES = 8192  # a Hello with its terms is by far the largest

WireMessage = Message | Control

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[WireMessage] = msgspec.msgpack.Decoder(WireMessage)


class FrameError(ValueError):
    """Bytes that are not a message of this version, with the reason."""


class OtherVersionError(FrameError):
    """A frame of another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} of the protocol; allowed: {VERSION}")
        self.version = version


def pack(message: WireMessage, content: Content = NOTHING) -> bytes:
    """Return the frame of a message and its content. ValueError if the envelope is too large."""
    envelope = _encoder.encode(message)
    if len(envelope) > MAX_ENVELOPE_BYTES:
        raise ValueError(f"an envelope of {len(envelope)} bytes; allowed: {MAX_ENVELOPE_BYTES}")
    if content is NOTHING:
        return HEADER.pack(MAGIC, VERSION, 0, len(envelope), *[0] * 6, 0.0) + envelope
    nodes, drawn, hidden = content.nodes, content.distributions, content.hidden
    header = HEADER.pack(
        MAGIC, VERSION, DRAWN.index(content.rule) + 1 if content.rule else 0, len(envelope), len(content.tokens),
        0 if nodes is None else len(nodes) + 1,
        *((0, 0) if drawn is None else drawn.shape), *((0, 0) if hidden is None else hidden.shape), 0.0,
    )  # fmt: skip
    parts = [header, np.asarray(content.tokens, dtype="<i4").tobytes()]
    if nodes is not None:
        parts.append(np.asarray(nodes, dtype="<i4").tobytes())
    parts += [np.asarray(rows, dtype="<f2").tobytes() for rows in (drawn, hidden) if rows is not None]
    return b"".join([*parts, envelope])


def parse(frame: bytes) -> tuple[WireMessage, Content]:
    """Return the message of a frame and its content; FrameError for any other bytes."""
    if len(frame) < HEADER.size:
        raise FrameError(f"{len(frame)} bytes are less than a header")
    magic, version, rule, envelope, tokens, nodes, rows, columns, states, width, _due_s = HEADER.unpack_from(frame)
    if magic != MAGIC:
        raise FrameError("not a frame of specfleet")
    if version != VERSION:
        raise OtherVersionError(version)
    if rule > len(DRAWN) or envelope > MAX_ENVELOPE_BYTES:
        raise FrameError("unknown rule, or too large an envelope")
    nodes_sent = max(nodes - 1, 0)
    bodies = 4 * (tokens + nodes_sent) + 2 * (rows * columns + states * width)
    if HEADER.size + bodies + envelope != len(frame):  # Python's integers: no product wraps around
        raise FrameError("sizes in the header and the size of the frame contradict each other")
    try:
        message: WireMessage = _decoder.decode(frame[len(frame) - envelope :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(str(error)) from None
    if not bodies and not rule and not nodes:
        return message, NOTHING
    place = HEADER.size
    ids = np.frombuffer(frame, "<i4", tokens, place).tolist()
    place += 4 * tokens
    tree = np.frombuffer(frame, "<i4", nodes_sent, place).tolist() if nodes else None
    place += 4 * nodes_sent
    drawn = np.frombuffer(frame, "<f2", rows * columns, place).reshape(rows, columns) if rows * columns else None
    place += 2 * rows * columns
    hidden = np.frombuffer(frame, "<f2", states * width, place).reshape(states, width) if states * width else None
    return message, Content(ids, tree, drawn, hidden, DRAWN[rule - 1] if rule else "")


def stamped(frame: bytes, due_s: float) -> bytes:
    """Return the frame of a message that is due at `due_s`."""
    return b"".join((frame[: HEADER.size - DUE.size], DUE.pack(due_s), memoryview(frame)[HEADER.size :]))


def due_of(frame: bytes) -> float:
    """Return when the message of a frame is due by the sender's clock; 0 for at once, or for no frame."""
    (due_s,) = DUE.unpack_from(frame, HEADER.size - DUE.size) if len(frame) >= HEADER.size else (0.0,)
    return due_s if due_s > 0 else 0.0


def payload_of(frame: bytes) -> int:
    """Return the payload of a frame in bytes: envelope and bodies, as `fleet.stations.payload` counts them.

    Headers of the protocol, of ZeroMQ, TCP and IP do not count. A rule counts as a byte.
    """
    return len(frame) - HEADER.size + (frame[3] != 0)
