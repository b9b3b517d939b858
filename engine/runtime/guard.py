"""What stands between a door's socket and those who connect: who is let in by key, and who is put out."""

from collections import Counter
from collections.abc import Container

import zmq
from zmq.utils.monitor import recv_monitor_message

from engine.runtime.connections import Connections
from engine.runtime.gate import DOMAIN, Gate
from engine.runtime.keys import Keys

SLACK_BYTES = 1 << 16  # of headers, heartbeats and greetings between two messages
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Guard:
    """Watches a door that is not bound yet. `port`: the door's, once it is. `counts`: what was refused or closed."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        door: "zmq.Socket[bytes]",
        keys: Keys | None,
        most_bytes: int,
    ) -> None:
        self.gate = None if keys is None else Gate(context, keys)
        if keys is not None:
            door.curve_server = True
            door.curve_secretkey = keys.secret
            door.set(zmq.ZAP_DOMAIN, DOMAIN)
            door.set(zmq.ZAP_ENFORCE_DOMAIN, 1)  # if nobody answered for the gate, nobody would be let in
        self.events = door.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _FAILED)
        self.left: list[bytes] = []  # whose connections have ended
        self.connections = Connections(2 * most_bytes + SLACK_BYTES)
        watched = [self.events] if self.gate is None else [self.events, self.gate.socket]
        self.descriptors = [int(socket.getsockopt(zmq.FD)) for socket in watched]

    @property
    def port(self) -> int:
        """The TCP port of the door; 0 until it is bound."""
        return self.connections.port

    @port.setter
    def port(self, port: int) -> None:
        self.connections.port = port

    @property
    def counts(self) -> Counter[str]:
        """What was refused or closed, and why."""
        return self.connections.counts + (Counter() if self.gate is None else self.gate.counts)

    def turn(self, known: Container[bytes], now_s: float) -> None:
        """Answer who asks for being let in, and note who has connected and gone; to be called at any news."""
        if self.gate is not None:
            self.gate.answer(now_s)
        while self.events.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self.events)
            fd = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.connections.accepted(fd, known, now_s)
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                peer = self.connections.gone(fd)
                self.left += [peer] if peer else []
            elif event["event"] != zmq.EVENT_HANDSHAKE_FAILED_AUTH:  # which the gate has counted
                self.connections.counts["greetings of another kind"] += 1

    def heard(self, fd: int, peer: bytes, user: str) -> bool:
        """Note that a peer has said something; False if it is being cut."""
        return self.connections.heard(fd, peer, user)

    def cut(self, peer: bytes, now_s: float) -> None:
        """Close the connection of a peer in a moment, and keep its key out for a while."""
        self._keep_out(self.connections.doom(peer, now_s), now_s)

    def close_of(self, peer: bytes) -> None:
        """Close the connection of a peer now; it may come again."""
        self.connections.close_of(peer)

    def tidy(self, known: Container[bytes], now_s: float) -> Counter[str]:
        """Do what is due; return lines for whoever runs the node, and how often each is due."""
        self.turn(known, now_s)
        for user in self.connections.tidy(known, now_s):
            self._keep_out(user, now_s)
        if self.gate is None:
            return Counter()
        told, self.gate.told = self.gate.told, Counter()
        return told

    def _keep_out(self, user: str, now_s: float) -> None:
        if user and self.gate is not None:
            self.gate.keep_out(user, now_s)
