"""The drafter's node: one process that drafts for every target that connects to it (StarSD, algorithm 1)."""

import os
import time

import zmq

from engine.runtime.build import new_drafter, new_streams
from engine.runtime.clock import now_s
from engine.runtime.content import Content
from engine.runtime.device_lock import DeviceLock, no_lock
from engine.runtime.executors import DraftExecutor
from engine.runtime.memory import with_admission
from engine.runtime.transport import PublicPort
from engine.runtime.worker import Receiver, Stop, Worker
from fleet.records.recorded import Log, RecordedStation
from fleet.scenario.settled import Fleet
from fleet.stations.build import drafter_station
from fleet.stations.messages import Draft, Ignored, Instruction, Refusal


class DrafterNode:
    """Model, station and sockets of the drafter. `port`: its public one; `fleet`: with its admission settled."""

    def __init__(
        self, fleet: Fleet, lock: DeviceLock = no_lock, address: str = "tcp://127.0.0.1", port: int = 0
    ) -> None:
        drafter = new_drafter(fleet, room=(fleet.verifiers.count, fleet.room.longest_row))
        self.fleet = fleet = with_admission(fleet, drafter.device)
        executor = DraftExecutor(drafter, new_streams(fleet))
        executor.drafter.warm_up(8)  # the first steps of a process are slow; they are nobody's
        self.context = zmq.Context()
        public = PublicPort(self.context, address, port)
        self.port = public.port
        self.worker = Worker(
            RecordedStation(drafter_station(fleet), "real"), executor, drafter.device, self._post, lock
        )
        self.receiver = Receiver(self.worker.inbox, public=public)
        self.receiver.waits = self.worker.waits

    def open(self) -> None:
        """Answer handshakes from now on."""
        self.receiver.start()

    def stop(self) -> None:
        """Let `serve` end once nothing is left to do; may be called from another thread."""
        self.worker.inbox.put(Stop())

    def serve(self, zero_s: float) -> Log:
        """Serve until stopped; return the station's log, its times counted from `zero_s`."""
        self.worker.zero_s = zero_s
        time.sleep(max(0.0, zero_s - now_s()))
        self.worker.run()
        self.receiver.stop()
        self.context.destroy(linger=0)
        return self.worker.recorded.log

    def _post(self, instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, Draft | Refusal):
            self.worker.channels[instruction.tag].send(instruction, content)
            os.sched_yield()  # else ZeroMQ's thread may wait for this core until the next draft is done
        else:
            assert isinstance(instruction, Ignored), instruction
