"""Actions of both ends of a connection. An end takes frames and returns actions; its driver carries them out."""

import msgspec

from specfleet.engine.net.content import NOTHING, Content
from specfleet.fleet.stations.messages import Join, Message, Overdue, Retry

SERVER_PORT = -1  # port of a node's server; its clients have ports from 0
NO_PEER = b""  # peer of a client, which has only one


class ReceivedFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame that has arrived at a port, and when."""

    port: int
    peer: bytes
    frame: bytes
    time_s: float


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Deliver an event to the station, `after_s` from now: a message, or the result of a lost connection."""

    event: Message | Join | Overdue | Retry
    content: Content = NOTHING
    payload_bytes: int = 0
    after_s: float = 0.0


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a frame, without waiting."""

    port: int
    peer: bytes
    frame: bytes


class Opened(msgspec.Struct, frozen=True, gc=False):
    """A client is connected: its server has welcomed it; `back` says so of one that was lost."""

    back: str = ""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """A client has lost its server, or is denied afterwards, and calls again; or something of its server is dropped."""

    reason: str


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A client that was never welcomed is denied for good, and why."""

    reason: str


Action = Deliver | Send | Opened | Lost | Rejected

ALIVE_S = 1.0  # a client that has sent nothing for so long sends Alive
LEASE_S = 5.0  # an end that has sent nothing for so long is lost; ZeroMQ notices a cut connection after 3 s
HELLO_S = 0.5  # between two Hellos without an answer
