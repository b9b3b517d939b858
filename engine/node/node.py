"""A node: one station with a worker, which runs in the thread that serves, and a thread for its sockets.

Posted messages wait in a queue for the socket thread, so inference never waits for a socket. A drafter has a server, a
target has clients of its drafters or of the router, a router has both.
"""

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import msgspec

from specfleet.engine.net.actions import Deliver
from specfleet.engine.net.addresses import FREE, shown
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.keys import Keys
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.links import LossyLinks, lossy_links, stated_links
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.net.socket_thread import SocketThread
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node.worker import DeviceLock, Executor, Item, Stop, Timed, Worker, by_the_clock, no_lock
from specfleet.engine.node.write_ahead_log import FIRST, Life, note_finished, open_log
from specfleet.fleet.policies.outcome import Token
from specfleet.fleet.records.recorder import Log, Origin, RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.build import drafter_station, join_of
from specfleet.fleet.stations.messages import Finished, Ignored, Instruction, Restarted


def say_nothing(_line: str) -> None:
    """Print no lines, as nodes of a launcher."""


class Site(msgspec.Struct, frozen=True):
    """Where a node runs.

    - `address`: of its server: ipc://PATH, or tcp://HOST:PORT with `keys`.
    - `say`: prints a line for the user of a node that was started by hand.
    - `life`: of its process.
    """

    address: str = FREE
    keys: Keys | None = None
    say: Callable[[str], None] = say_nothing
    life: Life = FIRST


HERE = Site()


class Stations:
    """The stations of a process, of whatever kind. `serve(zero_s)` returns their log, with times from `zero_s`.

    - `ends`: whether `serve` ends by itself. `address`: of its server; empty if it has none. `life`: of its process.
    - `workers`: of the stations whose drafts are preceded by samples of the device.
    - `outputs`: new tokens of each finished request of a real target. `signals`: of drafted tokens, if recorded.
    """

    ends = True
    address = ""
    life = FIRST
    socket_thread: SocketThread | None = None

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.workers: list[Worker] = []
        self.outputs: dict[int, list[int]] = {}
        self.signals: dict[int, list[Token]] = {}

    def open(self) -> None:
        """Connect, and accept connections: start the thread of the sockets."""
        if self.socket_thread is not None:
            self.socket_thread.start()

    def wait_for_welcomes(self, patience_s: float) -> None:
        """Wait until all clients are welcomed; else close the connections.

        InputError if one is rejected, or after `patience_s`.
        """
        try:
            if self.socket_thread is not None:
                self.socket_thread.wait_for_welcomes(patience_s)
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Let `serve` end early; from any thread, and from a signal handler."""

    def close(self) -> None:
        """Close the connections; raise the error of their thread, if any."""
        if self.socket_thread is not None:
            self.socket_thread.end()

    def stations(self) -> list[RecordedStation]:
        """Return its stations with their logs; from any thread."""
        return [worker.recorded for worker in self.workers]


class Node(Stations):
    """A station with its executor and, unless it is alone, its connections.

    - `sockets`: belongs to `connections`. A node without both is not connected.
    - `requests`: of the streams of a target, by tag; `serve` ends when all are decoded, or after `stop`.
    - `put`: takes its events, each at its time.
    - `lossy`: faults of its links.
    """

    def __init__(
        self,
        fleet: Fleet,
        station: RecordedStation,
        executor: Executor,
        connections: ConnectionTable | None = None,
        sockets: Sockets | None = None,
        requests: Mapping[int, Sequence[Request]] | None = None,
        timed: Timed = by_the_clock,
        lock: DeviceLock = no_lock,
        site: Site = HERE,
        lossy: LossyLinks | None = None,
    ) -> None:
        super().__init__(fleet)
        self.life = site.life
        self.lossy = lossy
        self.worker = Worker(station, executor, self.post, timed, lock)
        self.workers = [self.worker]
        self.put: Callable[[Item], None] = self.worker.inbox.put
        self.requests: dict[int, Iterator[Request]] = {tag: iter(stream) for tag, stream in (requests or {}).items()}
        self.ends = requests is not None
        if connections is not None and sockets is not None:
            self.address = sockets.bound
            self.socket_thread = SocketThread(connections, sockets, self.worker.inbox.put, self.stop, site.say, lossy)

    def serve(self, zero_s: float) -> Log:
        """Serve until all requests are done, or after `stop`."""
        self.worker.zero_s = zero_s
        if self.lossy is not None:
            self.lossy.zero_s = zero_s
        time.sleep(max(0.0, zero_s - now_s()))
        if self.life.number:
            self.worker.handle(Restarted(self.life.number), NOTHING, now_s())
        if self.ends and not self.requests:
            self.stop()
        for tag in list(self.requests):
            self.next_request(tag)
        try:
            self.worker.run()
        finally:
            self.close()
        return self.worker.recorded.log

    def stop(self) -> None:
        """End after the running step."""
        self.worker.inbox.put(Stop())

    def next_request(self, tag: int, after_s: float = 0.0) -> None:
        """Let a stream's next request open, or end after the last."""
        request = next(self.requests[tag], None)
        if request is not None:
            opens_s = max(now_s() + after_s + request.think_s, self.worker.zero_s + request.not_before_s)
            self.put((opens_s, Deliver(join_of(self.fleet, tag, request))))
            return
        del self.requests[tag]
        if not self.requests:
            self.put(Stop(when_done=True))

    def post(self, instruction: Instruction, content: Content) -> None:
        """Carry out an instruction of the station."""
        if isinstance(instruction, Finished):
            note_finished(self.worker.recorded.log, instruction.request, self.outputs.get(instruction.request, ()))
            self.next_request(instruction.tag, self.fleet.request_s)
        elif not isinstance(instruction, Ignored) and self.socket_thread is not None:
            self.socket_thread.post(instruction, content, self.worker.event_s)


def clients_of_drafters(
    fleet: Fleet, targets: Container[int], addresses: Mapping[int, str], site: Site, vocabulary: int = 0
) -> tuple[ConnectionTable, Sockets]:
    """Return the connections of these targets, each to the drafters of its streams or to the router.

    - `addresses`: of the drafters, by number; with a router, of the router alone.
    - `vocabulary`: of the targets' model; 0 if it has none.
    """
    asked = (lambda _tag: 0) if fleet.routed else fleet.drafter_of
    tags = [tag for tag in streams_of(fleet) if fleet.target_of(tag) in targets]
    pairs = {(fleet.target_of(tag), asked(tag)) for tag in tags if fleet.drafters.stations}
    ports = {pair: port for port, pair in enumerate(sorted(pairs))}
    connect = {port: addresses[drafter] for (_, drafter), port in ports.items()}
    born, goes_on = time.time_ns(), site.life.number > 0
    clients = {
        port: ClientEnd(fleet, target, born, "verifier", drafter, port, shown([connect[port]]), vocabulary, goes_on)
        for (target, drafter), port in ports.items()
    }
    connections = ConnectionTable(
        None, clients, lambda tag: ports[fleet.target_of(tag), asked(tag)], links=stated_links(fleet)
    )
    return connections, Sockets(None, connect, max_bytes(fleet, vocabulary), site.keys)


def drafting_node(
    fleet: Fleet,
    number: int,
    executor: Executor,
    origin: Origin,
    site: Site,
    vocabulary: int = 0,
    state_numbers: int = 0,
    timed: Timed = by_the_clock,
    lock: DeviceLock = no_lock,
) -> Node:
    """Return the node of drafter `number`, with a server. `vocabulary`, `state_numbers`: of its model, see `ServerEnd`.

    It has no connection before its process is back.
    """
    life = site.life
    life.wait_until_back()
    return Node(
        fleet,
        RecordedStation(drafter_station(fleet, number), origin, open_log(life), life.written),
        executor,
        ConnectionTable(ServerEnd(fleet, vocabulary, state_numbers, number), links=stated_links(fleet, number)),
        Sockets(site.address, None, max_bytes(fleet, vocabulary, state_numbers), site.keys),
        timed=timed,
        lock=lock,
        site=site,
        lossy=lossy_links(fleet, number, life.number),
    )
