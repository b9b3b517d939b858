"""A node's end of the pipe to its launcher. Messages of several threads go whole, and no report waits for long."""

import select
import threading
from multiprocessing.connection import Connection
from typing import Any, Literal

from engine.node.power import Device

PROGRESS, SAMPLES = "progress", "samples"  # kinds of messages that answer nothing
ROOM_S = 1.0  # that a report waits for a launcher that reads slowly


class LauncherPipe:
    """`watched`: whether the launcher wants reports. `power`: the device to measure; empty for none."""

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

    def report(self, progress: object) -> bool:
        """Send a report of progress; False if the launcher does not read, or is gone."""
        with self.sending:
            try:
                if not select.select([], [self.connection.fileno()], [], self.room_s)[1]:
                    return False
                self.connection.send((PROGRESS, progress))
            except OSError:
                return False
        return True
