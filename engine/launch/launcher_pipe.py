"""A node's end of the pipe to its launcher. Messages of several threads are written whole; reports time out."""

import select
import threading
from multiprocessing.connection import Connection
from typing import Any, Literal

from engine.node.power import Device

PROGRESS, SAMPLES = "progress", "samples"  # kinds of messages that need no answer
ROOM_S = 1.0  # timeout of a report when the launcher reads slowly


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
        """Wait for the launcher's next message; EOFError if the launcher is gone."""
        return self.connection.recv()

    def send(self, message: tuple[str, Any]) -> None:
        """Send a message that the launcher waits for: its kind and its value."""
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
