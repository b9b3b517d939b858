"""The client of `specfleet top`: requests the status of a node at the server that its targets use. Without torch."""

import msgspec

from engine.net.actions import Send
from engine.net.addresses import address_of
from engine.net.clock import now_s
from engine.net.frames import HEADER, MAX_ENVELOPE_BYTES, VERSION, FrameError, OtherVersionError, pack, parse
from engine.net.handshake import Denied, Unknown, printable
from engine.net.keys import Keys
from engine.net.sockets import Sockets
from engine.net.status import Ask, Status
from fleet.errors import InputError

PATIENCE_S = 5.0  # timeout of the status
AGAIN_S = 0.5  # between two requests without an answer


class Asker:
    """A connection to the server at `address` (HOST:PORT). `keys`: as a target's, where the server has keys."""

    def __init__(self, address: str, keys: Keys | None = None, patience_s: float = PATIENCE_S) -> None:
        self.address = address
        self.patience_s = patience_s
        self.sockets = Sockets(None, {0: address_of(address, address)}, HEADER.size + MAX_ENVELOPE_BYTES, keys)

    def close(self) -> None:
        """Close the connection."""
        self.sockets.close()

    def status(self) -> Status:
        """Return the status of all targets, page by page; InputError if the node does not answer or refuses."""
        whole = self._page(0)
        rows = list(whole.rows)
        while rows and len(rows) < whole.targets:
            page = self._page(len(rows))
            if not page.rows:
                break
            rows += page.rows
        return msgspec.structs.replace(whole, rows=tuple(rows))

    def _page(self, first: int) -> Status:
        until_s, asked_s = now_s() + self.patience_s, -1e9
        while now_s() < until_s:
            if now_s() - asked_s >= AGAIN_S:
                asked_s = now_s()
                self.sockets.send(Send(0, b"", pack(Ask(first))))
            for line in self.sockets.tidy(()):
                raise InputError(line)
            for frame in self.sockets.poll(0.1):
                answer = self._read(frame.frame)
                if answer is not None and answer.first == first:
                    return answer
        raise InputError(f"{self.address}: no node of specfleet answered within {self.patience_s:g} s")

    def _read(self, frame: bytes) -> Status | None:
        """Parse the status in a frame; InputError if the node refuses."""
        try:
            message, _ = parse(frame)
        except OtherVersionError as error:
            raise InputError(
                f"{self.address}: speaks version {error.version} of the protocol, and this is {VERSION}"
            ) from None
        except FrameError as error:
            raise InputError(f"{self.address}: sends what cannot be read: {error}") from None
        if isinstance(message, Denied):
            raise InputError(f"{self.address}: {printable(message.reason)}")
        if isinstance(message, Unknown):
            raise InputError(f"{self.address}: is a node that does not tell how it is doing; those started by hand do")
        return message if isinstance(message, Status) else None
