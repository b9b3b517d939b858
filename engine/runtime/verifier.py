"""A real target's node: one process with the target model, its user's requests, and a channel to the drafter."""

import time
from collections.abc import Sequence

import zmq

from engine.runtime.build import load_target, new_streams, new_target
from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content
from engine.runtime.device_lock import DeviceLock, no_lock
from engine.runtime.executors import VerifyExecutor
from engine.runtime.transport import connect
from engine.runtime.worker import Arrival, Receiver, Stop, Worker
from fleet.records.recorded import Log, RecordedStation
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import requests_of
from fleet.stations.build import join_of, verifier_station
from fleet.stations.messages import DraftRequest, Finished, Ignored, Instruction, Leave

LINGER_MS = 5000


class VerifierNode:
    """Model, station and sockets of target number `target`. `prompts[i]` holds the token ids of request i."""

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        prompts: Sequence[Sequence[int]],
        drafter_port: int,
        lock: DeviceLock = no_lock,
        address: str = "tcp://127.0.0.1",
    ) -> None:
        self.fleet = fleet
        self.target = target
        model = load_target(fleet)
        self.executor = VerifyExecutor(
            new_target(fleet, model, room=(1, fleet.room.longest_row)),
            new_streams(fleet, prompts),
            sends_hidden=fleet.drafters.kind == "eagle",
        )
        self.worker = Worker(
            RecordedStation(verifier_station(fleet, target), "real"), self.executor, model.device, self._post, lock
        )
        self.requests = requests_of(fleet, target)
        self.context = zmq.Context()
        self.receiver: Receiver | None = None
        if fleet.drafters.count:
            channel = connect(self.context, address, drafter_port, target)
            self.worker.channels[target] = channel
            self.receiver = Receiver(self.worker.inbox, channel=channel)
            self.receiver.waits = self.worker.waits

    def serve(self, zero_s: float) -> Log:
        """Decode all requests of this target; return the station's log, its times counted from `zero_s`."""
        self.worker.zero_s = zero_s
        if self.receiver is not None:
            self.receiver.start()
        time.sleep(max(0.0, zero_s - now_s()))
        self._next_request()
        self.worker.run()
        if self.receiver is not None:
            self.receiver.stop()
        self.context.destroy(linger=LINGER_MS)  # after the last message is out, unless the drafter is gone
        return self.worker.recorded.log

    def stop(self) -> None:
        """Let `serve` end after the step that runs; may be called from a signal's handler."""
        self.worker.inbox.put(Stop())

    @property
    def outputs(self) -> dict[int, list[int]]:
        """The new tokens of every finished request."""
        return self.executor.outputs

    def _next_request(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.worker.inbox.put(Stop())
        else:
            self.worker.inbox.put(Arrival(join_of(self.fleet, self.target, request), NOTHING, now_s()))

    def _post(self, instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, DraftRequest | Leave):
            self.worker.channels[instruction.tag].send(instruction, content)
        elif isinstance(instruction, Finished):
            self._next_request()
        else:
            assert isinstance(instruction, Ignored), instruction
