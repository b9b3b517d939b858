"""A node's end of the pipe to its launcher. What several threads send goes whole, and no report waits for long."""

import select
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Literal

from engine.node.power import Device

PROGRESS, SAMPLES = "progress", "samples"  # kinds of messages that answer nothing
ROOM_S = 1.0  # that a report waits for a launcher that reads slowly


class LauncherPipe:
    """`watched`: whether somebody wants to know what the node does. `power`: the device to measure; empty for none."""

    def __init__(
        self, connection: Connection, watched: bool = False, power: Device | Literal[""] = "", room_s: float = ROOM_S
    ) -> None:
        self.connection = connection
        self.watched = watched
        self.power = power
        self.room_s = room_s
        self.sending = threading.Lock()

    def recv(self) -> Any:
        """Wait for what the launcher sends; EOFError if it is gone."""
        return self.connection.recv()

    def send(self, message: tuple[str, Any]) -> None:
        """Send something that the launcher waits for: its kind, and what it is."""
        with self.sending:
            self.connection.send(message)

    def report(self, progress: object) -> None:
        """Send news of progress, unless the launcher does not read: newer ones follow."""
        with self.sending, suppress(OSError):  # it is gone, and so will be this process
            if select.select([], [self.connection.fileno()], [], self.room_s)[1]:
                self.connection.send((PROGRESS, progress))
