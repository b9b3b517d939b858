"""What the ends of connections ask for: bytes go in, these come out, and whoever drives an end acts."""

import msgspec

from engine.net.content import NOTHING, Content
from engine.net.handshake import Ping
from fleet.stations.messages import Join, Message, Overdue, Retry, StationEvent

DOOR = -1  # the port of a node's door; its lines have ports from 0
ANYBODY = b""  # the peer of a line: there is only one


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A frame that has arrived at a port, and when. `user`: key name of its sender; empty without keys."""

    port: int
    peer: bytes
    frame: bytes
    time_s: float
    user: str = ""


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand an event to the station: a message under its tag of the fleet, or what follows from a lost connection.

    `after_s`: how much later than now.
    """

    event: Message | Join | Overdue | Retry | Ping
    content: Content = NOTHING
    payload_bytes: int = 0
    after_s: float = 0.0


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a frame, at once or not at all."""

    port: int
    peer: bytes
    frame: bytes


class Cut(msgspec.Struct, frozen=True, gc=False):
    """Close the connection of a peer of the door."""

    peer: bytes


class Opened(msgspec.Struct, frozen=True, gc=False):
    """A line is welcomed: its target is served."""

    port: int


class Lost(msgspec.Struct, frozen=True, gc=False):
    """A line was open and is not any more; it calls again by itself."""

    port: int
    reason: str


class Turned(msgspec.Struct, frozen=True, gc=False):
    """A line is turned away for good, and why."""

    port: int
    reason: str


class Arrival(msgspec.Struct, frozen=True):
    """An event with its content, when it reached this host and how large it was on the wire.

    One of a later time is kept until then.
    """

    event: StationEvent | Ping
    content: Content
    time_s: float
    payload_bytes: int = 0


Action = Deliver | Send | Cut | Opened | Lost | Turned

ALIVE_S = 1.0  # after so long without a word a line says that it lives
LEASE_S = 5.0  # after so long without a word the other end is lost; ZeroMQ's own heartbeats notice a cut in 3 s
HELLO_S = 0.5  # between two Hellos of a line that nobody has answered
