"""A node: one station with a worker, which runs in the thread that serves, and a thread for its sockets.

Posted messages wait in a queue for the socket thread, so inference never waits for a socket. A drafter has a server, a
target has clients of its drafters or of the router, a router has both.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from engine.net.actions import Arrival
from engine.net.clock import now_s
from engine.net.connections import ConnectionTable
from engine.net.content import NOTHING, Content
from engine.net.links import LossyLinks
from engine.net.server import ServerEnd
from engine.net.socket_thread import SocketThread
from engine.net.sockets import Sockets
from engine.node.device_lock import DeviceLock, no_lock
from engine.node.worker import Executor, Stop, Timed, Worker, by_the_clock
from engine.node.write_ahead_log import FIRST, Life
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.stations.messages import Finished, Ignored, Instruction, Join, Restarted

LOOPBACK = "tcp://127.0.0.1"

Users = Mapping[int, Iterator[Join]]  # the requests of each stream, by tag


class Node:
    """A station with its executor and, unless it is alone, its connections.

    - `users`: requests of a target's users; `serve` ends when all are decoded, or after `stop`.
    - `opens_s`: the earliest time of a request, in seconds of the run; 0 if it is not listed.
    - `sockets`: belongs to `connections`. A node without both is not connected.
    - `say`: prints a line for the user of a node that was started by hand.
    - `life`: of its process. `finished`: callback for each decoded request. `lossy`: faults of its links.

    Nodes of a launcher know their `fleet`; `port` is that of their server.
    """

    fleet: Fleet
    port = 0

    def __init__(
        self,
        station: RecordedStation,
        executor: Executor,
        connections: ConnectionTable | None = None,
        sockets: Sockets | None = None,
        users: Users | None = None,
        opens_s: Mapping[int, float] | None = None,
        timed: Timed = by_the_clock,
        lock: DeviceLock = no_lock,
        say: Callable[[str], None] = lambda _line: None,
        life: Life = FIRST,
        finished: Callable[[int], None] = lambda _request: None,
        lossy: LossyLinks | None = None,
    ) -> None:
        self.life = life
        self.finished = finished
        self.lossy = lossy
        self.worker = Worker(station, executor, self._post, timed, lock)
        self.users = dict(users or {})
        self.ends = users is not None
        self.opens_s = opens_s or {}
        self.socket_thread: SocketThread | None = None
        if connections is not None and sockets is not None:
            self.socket_thread = SocketThread(connections, sockets, self.worker.inbox.put, self.stop, say, lossy)

    def open(self) -> None:
        """Connect, and accept connections."""
        if self.socket_thread is not None:
            self.socket_thread.start()

    def wait_for_welcomes(self, patience_s: float) -> None:
        """Wait until all clients are welcomed; InputError if one is rejected, or after `patience_s`."""
        try:
            if self.socket_thread is not None:
                self.socket_thread.wait_for_welcomes(patience_s)
        except BaseException:
            self.close()
            raise

    def serve(self, zero_s: float) -> Log:
        """Serve until nothing is left to do; return the station's log, with times from `zero_s`."""
        self.worker.zero_s = zero_s
        if self.lossy is not None:
            self.lossy.zero_s = zero_s
        time.sleep(max(0.0, zero_s - now_s()))
        if self.life.number:
            self.worker.handle(Restarted(self.life.number), NOTHING, now_s())
        if self.ends and not self.users:
            self.stop()
        for tag in list(self.users):
            self._next_request(tag)
        try:
            self.worker.run()
        finally:
            self.close()
        return self.worker.recorded.log

    @property
    def outputs(self) -> dict[int, list[int]]:
        """New tokens of each finished request; only real targets have any."""
        return {}

    @property
    def server(self) -> ServerEnd | None:
        """Its server, if it has one."""
        return None if self.socket_thread is None else self.socket_thread.connections.server

    @property
    def workers(self) -> list[Worker]:
        """Its workers."""
        return [self.worker]

    def stations(self) -> list[RecordedStation]:
        """Return its stations with their logs; from any thread."""
        return [self.worker.recorded]

    def stop(self) -> None:
        """Let `serve` end once nothing is left to do; from any thread, and from a signal handler."""
        self.worker.inbox.put(Stop())

    def close(self) -> None:
        """Close the connections; raise the error of their thread, if any."""
        if self.socket_thread is not None:
            self.socket_thread.end()

    def _next_request(self, tag: int) -> None:
        join = next(self.users[tag], None)
        if join is not None:
            opens_s = self.worker.zero_s + self.opens_s.get(join.request, 0.0)
            self.worker.inbox.put(Arrival(join, NOTHING, max(now_s(), opens_s)))
            return
        del self.users[tag]
        if not self.users:
            self.stop()

    def _post(self, instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, Finished):
            self.finished(instruction.request)
            self._next_request(instruction.tag)
        elif not isinstance(instruction, Ignored) and self.socket_thread is not None:
            self.socket_thread.post(instruction, content, self.worker.event_s)
