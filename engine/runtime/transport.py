"""Messages over ZeroMQ: a handshake on the drafter's public port, then two dedicated ports a target.

A message is six frames, of which the last four are often empty: the envelope (MessagePack of a typed struct), token ids
(int32), nodes of a tree (int32), draft distributions and hidden states (float16), and a byte for the rule that a draft
was drawn for. Nothing is unpickled, a frame that does not decode is an error. Each direction has a port of its own
because a socket belongs to one thread: the drafter's receiver thread reads, its inference worker writes; ZeroMQ's own
background thread is the sender, so writing never waits for the network.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import zmq

from engine.runtime.content import DRAWN, Content
from fleet.errors import InputError
from fleet.stations.messages import Message
from fleet.stations.payload import decode, encode

HANDSHAKE_TIMEOUT_S = 60.0


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """Target to drafter, on the public port: which target of the fleet asks to be served."""

    target: int


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """Drafter to target: its tag, and its dedicated ports for requests (up) and drafts (down)."""

    tag: int
    up_port: int
    down_port: int


class Denied(msgspec.Struct, tag="denied", frozen=True):
    """Drafter to target: it is not served, and why."""

    reason: str


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """Either way, on the dedicated ports: to be sent back at once. Link times come from round trips."""

    number: int


Control = Hello | Welcome | Denied | Ping
_control = msgspec.msgpack.Decoder(Control)


class Channel:
    """One target's two dedicated sockets, seen from either end."""

    def __init__(self, receiving: zmq.Socket, sending: zmq.Socket) -> None:
        self.receiving = receiving
        self.sending = sending

    def send(self, message: Message, content: Content) -> None:
        """Hand a message to ZeroMQ's background thread."""
        self.sending.send_multipart([encode(message), *content_frames(content)], copy=True)

    def ping(self, number: int, payload: bytes) -> None:
        """Send (or send back) a ping."""
        self.sending.send_multipart([msgspec.msgpack.encode(Ping(number)), payload])


def content_frames(content: Content) -> list[bytes]:
    """Return the frames of a message's content."""
    nodes = b"" if content.nodes is None else np.asarray(content.nodes, dtype=np.int32).tobytes()
    weights = [b"" if rows is None else rows.tobytes() for rows in (content.distributions, content.hidden)]
    rule = bytes([DRAWN.index(content.rule)]) if content.rule else b""
    return [np.asarray(content.tokens, dtype=np.int32).tobytes(), nodes, *weights, rule]


def parse(frames: Sequence[bytes]) -> tuple[Message | Ping, Content]:
    """Decode the frames of a dedicated port; raises msgspec.DecodeError on anything unexpected."""
    try:
        message = decode(frames[0])
    except msgspec.ValidationError:
        control = _control.decode(frames[0])
        if not isinstance(control, Ping):
            raise
        return control, Content()
    tokens, nodes = (np.frombuffer(frame, dtype=np.int32).tolist() for frame in frames[1:3])
    inner = max(nodes) + 1 if nodes else len(tokens)
    distributions, hidden = (np.frombuffer(frame, dtype=np.float16) for frame in frames[3:5])
    return message, Content(
        tokens,
        nodes or None,
        distributions.reshape(inner, -1) if len(distributions) else None,
        hidden if len(hidden) else None,
        DRAWN[frames[5][0]] if frames[5] else "",
    )


def size_of(frames: Sequence[bytes]) -> int:
    """Payload of a message in bytes."""
    return sum(len(frame) for frame in frames)


class PublicPort:
    """The drafter's public port: binds, then answers each Hello with a tag and two bound ports."""

    def __init__(self, context: zmq.Context, address: str = "tcp://127.0.0.1", port: int = 0) -> None:
        self.context = context
        self.address = address
        self.socket = context.socket(zmq.ROUTER)
        self.admitted: set[int] = set()
        if port:
            self.socket.bind(f"{address}:{port}")
            self.port = port
        else:
            self.port = self.socket.bind_to_random_port(address)

    def admit(self) -> tuple[int, Channel] | None:
        """Answer the Hello that waits; return the new tag and its channel, None for a target that is connected."""
        identity, body = self.socket.recv_multipart()
        hello = _control.decode(body)
        if not isinstance(hello, Hello):
            raise msgspec.ValidationError(f"expected a Hello on the public port, got {hello}")
        if hello.target in self.admitted:
            reason = f"target {hello.target + 1} is connected already; give each target a number of its own"
            self.socket.send_multipart([identity, msgspec.msgpack.encode(Denied(reason))])
            return None
        self.admitted.add(hello.target)
        up, down = self.context.socket(zmq.PULL), self.context.socket(zmq.PUSH)
        # Bound before they are announced, so that a target never connects to a port of somebody else.
        welcome = Welcome(hello.target, up.bind_to_random_port(self.address), down.bind_to_random_port(self.address))
        self.socket.send_multipart([identity, msgspec.msgpack.encode(welcome)])
        return hello.target, Channel(receiving=up, sending=down)


def connect(context: zmq.Context, address: str, public_port: int, target: int) -> Channel:
    """Connect to the drafter as target number `target`; return the channel.

    TimeoutError if none answers, InputError if another target has that number.
    """
    public = context.socket(zmq.DEALER)
    public.connect(f"{address}:{public_port}")
    public.send(msgspec.msgpack.encode(Hello(target)))
    if not public.poll(math.ceil(HANDSHAKE_TIMEOUT_S * 1000)):
        public.close(linger=0)
        raise TimeoutError(f"no drafter answered at {address}:{public_port} within {HANDSHAKE_TIMEOUT_S:.0f} s")
    welcome = _control.decode(public.recv())
    public.close(linger=0)
    if isinstance(welcome, Denied):
        raise InputError(f"{address}:{public_port}: {welcome.reason}")
    if not isinstance(welcome, Welcome):
        raise msgspec.ValidationError(f"expected a Welcome from the drafter, got {welcome}")
    up, down = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    up.connect(f"{address}:{welcome.up_port}")
    down.connect(f"{address}:{welcome.down_port}")
    return Channel(receiving=down, sending=up)
