"""A worker drives one station with real time: an inbox of events, a device, an executor.

The receiver thread only stamps and queues what arrives, so that input never waits for inference, and inference never
for the network. The worker's thread owns station, executor and sending sockets.
"""

import queue
import threading
from collections.abc import Callable

import msgspec
import torch
import zmq

from engine.decoding.telemetry import timed
from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content, Executor
from engine.runtime.control import Control
from engine.runtime.core_waits import CoreWaits, this_thread, zmq_threads
from engine.runtime.device_lock import DeviceLock, no_lock
from engine.runtime.transport import Channel, Ping, PublicPort, parse, size_of
from fleet.records.recorded import RecordedStation
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Ignored,
    Instruction,
    Refusal,
    Released,
    StationEvent,
    StepDone,
)
from fleet.stations.station import Start

POLL_MS = 100  # how often a receiver looks whether it should stop


class Arrival(msgspec.Struct, frozen=True):
    """An event with its content, when it reached this host and how large it was on the wire."""

    event: StationEvent
    content: Content
    time_s: float
    payload_bytes: int = 0
    core_wait_s: float = 0.0


class Pinged(msgspec.Struct, frozen=True):
    """A ping to be sent back by the worker, so that its round trip takes the path of a real message."""

    channel: Channel
    ping: Ping
    payload: bytes


class Welcomed(msgspec.Struct, frozen=True):
    """A target has connected: the worker may send on its channel."""

    tag: int
    channel: Channel


class Stop(msgspec.Struct, frozen=True):
    """Nothing more will come."""


Item = Arrival | Pinged | Welcomed | Stop


class Worker:
    """One station, its executor and its device, in the thread that calls `run`.

    `post(instruction, content)` carries out what the station asks for. `zero_s` is the run's time zero on this host.
    """

    def __init__(
        self,
        station: RecordedStation,
        executor: Executor,
        device: torch.device,
        post: Callable[[Instruction, Content], None],
        lock: DeviceLock = no_lock,
        zero_s: float = 0.0,
    ) -> None:
        self.recorded = station
        self.station = station.station
        self.executor = executor
        self.device = device
        self.post = post
        self.lock = lock
        self.zero_s = zero_s
        self.control = Control() if device.type == "cpu" else None
        self.own_waits = CoreWaits(this_thread)
        self.waits = CoreWaits(zmq_threads)
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.channels: dict[int, Channel] = {}

    def run(self) -> None:
        """Serve until a Stop came and nothing is left to do."""
        stopping = False
        while self.station.ready or not stopping:
            if self.station.ready:
                stopping |= self.step()
            else:
                self.own_waits.since_last_s()  # what it waited for before it had nothing to do held up nothing
                stopping |= self._take(self.inbox.get())

    def step(self) -> bool:
        """Run the next step of the station; return whether the inbox held the end of the run."""
        with self.lock():
            stop = self._drain()  # what came in while waiting for the device is still considered for the step
            plan = self.recorded.plan(now_s() - self.zero_s, self.own_waits.since_last_s())
            if not isinstance(plan, Start):
                return stop
            outcomes, duration_s = timed(lambda: self.executor.run(plan.step), self.device)
            ended_s = now_s()
            self.own_waits.since_last_s()  # those of the step are in its time
            control_s = self.control.seconds() if self.control else 0.0
            stop |= self._drain()  # arrivals during the step happened before its end
            # Results go out before the device does: whoever has it next may take the core that would send them.
            self.handle(
                StepDone(plan.step.number, outcomes, duration_s, control_s),
                NOTHING,
                ended_s,
                core_wait_s=self.waits.since_last_s(),
            )
        return stop

    def handle(
        self, event: StationEvent, content: Content, time_s: float, payload_bytes: int = 0, core_wait_s: float = 0.0
    ) -> None:
        """Hand an event to the station; let the executor take its content if the station accepted it."""
        instructions = self.recorded.handle(event, time_s - self.zero_s, payload_bytes, core_wait_s)
        if not any(isinstance(instruction, Ignored | Refusal) for instruction in instructions):
            self.executor.receive(event, content)
        for instruction in instructions:
            if isinstance(instruction, Released):
                self.executor.release(instruction.tag)
            elif isinstance(instruction, Draft | DraftRequest):
                self.post(instruction, self.executor.content_of(instruction))
            else:
                self.post(instruction, NOTHING)

    def _drain(self) -> bool:
        stop = False
        while True:
            try:
                stop |= self._take(self.inbox.get_nowait())
            except queue.Empty:
                return stop

    def _take(self, item: Item) -> bool:
        match item:
            case Arrival():
                self.handle(item.event, item.content, item.time_s, item.payload_bytes, item.core_wait_s)
            case Pinged():
                item.channel.ping(item.ping.number, item.payload)
            case Welcomed():
                self.channels[item.tag] = item.channel
        return isinstance(item, Stop)


class Receiver(threading.Thread):
    """Reads the public port, if there is one, and all dedicated ports; stamps what arrives and queues it."""

    def __init__(
        self,
        inbox: "queue.SimpleQueue[Item]",
        public: PublicPort | None = None,
        channel: Channel | None = None,
    ) -> None:
        super().__init__(name="receiver", daemon=True)
        self.inbox = inbox
        self.public = public
        self.stopped = threading.Event()
        self.error: Exception | None = None
        self.own_waits = CoreWaits(this_thread)
        self.waits = CoreWaits(zmq_threads)
        self.poller = zmq.Poller()
        self.channels: dict[zmq.Socket, Channel] = {}
        if public is not None:
            self.poller.register(public.socket, zmq.POLLIN)
        if channel is not None:
            self._read(channel)

    def run(self) -> None:
        """Receive until stopped; an error ends the worker too."""
        try:
            while not self.stopped.is_set():
                self.own_waits.since_last_s()
                for socket, _ in self.poller.poll(POLL_MS):
                    self._receive(socket)
        except Exception as error:  # noqa: BLE001  (whatever it is, the worker must stop, and `stop` raise it)
            self.error = error
            self.inbox.put(Stop())

    def stop(self) -> None:
        """End the thread; raise what went wrong in it."""
        self.stopped.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _read(self, channel: Channel) -> None:
        self.channels[channel.receiving] = channel
        self.poller.register(channel.receiving, zmq.POLLIN)

    def _receive(self, socket: zmq.Socket) -> None:
        time_s = now_s()
        if self.public is not None and socket is self.public.socket:
            admitted = self.public.admit()
            if admitted is not None:
                self.inbox.put(Welcomed(*admitted))
                self._read(admitted[1])
            return
        frames = socket.recv_multipart()
        message, content = parse(frames)
        if isinstance(message, Ping):
            self.inbox.put(Pinged(self.channels[socket], message, frames[1]))
        else:
            self.inbox.put(
                Arrival(
                    message, content, time_s, size_of(frames), self.own_waits.since_last_s() + self.waits.since_last_s()
                )
            )
