"""Co-located serving: all stations take turns in one thread of one process; messages are function calls."""

import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from engine.decoding.telemetry import timed
from engine.net.clock import now_s
from engine.net.content import NOTHING, Content
from engine.node.build import load_target, new_drafter, new_streams, new_target
from engine.node.executors import DraftExecutor, VerifyExecutor
from engine.node.node import HERE, Site, Stations
from engine.node.pending import PendingDrafts
from engine.node.worker import Worker
from fleet.records.recorder import Log, RecordedStation
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import requests_of
from fleet.stations.build import drafter_station, join_of, verifier_station
from fleet.stations.messages import Draft, DraftRequest, Finished, Instruction, Leave, Refusal, StationEvent
from fleet.stations.station import Station


class Colocated(Stations):
    """The workers of a fleet in one thread, around one target model and at most one drafter."""

    def __init__(self, fleet: Fleet, prompts: Sequence[Sequence[int]], site: Site = HERE) -> None:
        super().__init__(fleet)
        model, room = load_target(fleet), (fleet.verifiers.count, fleet.room.longest_row)
        streams, numbers = new_streams(fleet, prompts), range(fleet.verifiers.count)
        self.log: Log = []
        self.inbox: deque[tuple[Worker, StationEvent, Content]] = deque()
        self.requests = [requests_of(fleet, number) for number in numbers]

        on_device = partial(timed, device=model.device)

        def worker(station: Station, executor: DraftExecutor | VerifyExecutor) -> Worker:
            return Worker(RecordedStation(station, "real", self.log), executor, self._post, on_device)

        target = new_target(fleet, model, room=room)
        verifying = VerifyExecutor(target, streams, PendingDrafts(), fleet.drafters.kind == "eagle")
        self.outputs = verifying.outputs
        self.workers = [worker(verifier_station(fleet, number), verifying) for number in numbers]
        if fleet.drafters.count:
            drafting = DraftExecutor(new_drafter(fleet, model, room=room), streams)
            self.workers.append(worker(drafter_station(fleet), drafting))

    def serve(self, zero_s: float) -> Log:
        """Decode all requests. Stations run in the order in which they became ready."""
        time.sleep(max(0.0, zero_s - now_s()))
        for worker in self.workers:
            worker.zero_s = zero_s
        for number in range(len(self.requests)):
            self._next_request(number)
        waiting: deque[Worker] = deque()
        while self.inbox or any(worker.station.ready for worker in self.workers):
            while self.inbox:
                worker, event, content = self.inbox.popleft()
                worker.handle(event, content, now_s())
            waiting += [worker for worker in self.workers if worker.station.ready and worker not in waiting]
            if waiting:
                waiting.popleft().step()
        return self.log

    def _post(self, instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, DraftRequest | Leave):
            self.inbox.append((self.workers[-1], instruction, content))
        elif isinstance(instruction, Draft | Refusal):
            self.inbox.append((self.workers[instruction.tag], instruction, content))
        elif isinstance(instruction, Finished):
            self._next_request(instruction.tag)

    def _next_request(self, number: int) -> None:
        request = next(self.requests[number], None)
        if request is not None:
            self.inbox.append((self.workers[number], join_of(self.fleet, number, request), NOTHING))
