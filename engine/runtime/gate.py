"""Who is let in by key: ZeroMQ asks here about each greeting at a door that has keys, before anything is decoded."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import zmq
from zmq.utils import z85

from engine.runtime.keys import Keys, allowed_keys
from fleet.errors import InputError

ADDRESS = "inproc://zeromq.zap.01"  # where ZeroMQ asks (its specification 27)
DOMAIN = b"specfleet"
OUT_S = 60.0  # how long whoever was cut is not let in again
READ_S = 1.0  # between two looks into the folder of allowed keys
MOST_TOLD = 16  # lines that are not fetched yet


class Gate:
    """Answers ZeroMQ for one context; it must be there before a door is bound, or nobody is let in.

    The folder of allowed keys is read again when an unknown one comes, so that a key can be added while a node runs; a
    key that is taken away ends no connection. `out`: until when a name is kept out. `told`: lines for whoever runs the
    node, to be fetched, and how often each is due; of MOST_TOLD strangers at most.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", keys: Keys) -> None:
        assert keys.allowed is not None
        self.folder: Path = keys.allowed
        self.names = allowed_keys(self.folder)
        self.read_s = -1e9
        self.out: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(ADDRESS)

    def answer(self, now_s: float) -> None:
        """Answer all questions that wait."""
        while self.socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            version, number, _domain, address, _routing_id, mechanism, *credentials = self.socket.recv_multipart()
            key = z85.encode(credentials[0]) if mechanism == b"CURVE" else b""
            name = self._name_of(key, now_s)
            status = b"200" if name else b"400"
            if not name:
                self._refuse(address.decode(errors="replace"), key)
            self.socket.send_multipart([version, number, status, b"", name.encode(), b""])

    def keep_out(self, name: str, now_s: float) -> None:
        """Let somebody in again after OUT_S only."""
        self.out[name] = now_s + OUT_S

    def _name_of(self, key: bytes, now_s: float) -> str:
        """Return whose key it is; empty for nobody's, and for one that is kept out."""
        if key not in self.names and now_s - self.read_s > READ_S:
            self.read_s = now_s
            with suppress(InputError):  # a file is half written, or no key: those that were read before still hold
                self.names = allowed_keys(self.folder)
        name = self.names.get(key, "")
        return "" if self.out.get(name, 0.0) > now_s else name

    def _refuse(self, address: str, key: bytes) -> None:
        name = self.names.get(key)
        self.counts["of known peers, kept out" if name else "of unknown keys"] += 1
        why = f"{name} is kept out for {OUT_S:.0f} s" if name else f"its key {key.decode()} is not in {self.folder}"
        line = f"refused {address}: {why}"
        if line in self.told or len(self.told) < MOST_TOLD:
            self.told[line] += 1
