"""Co-located serving: all stations in one process and one thread, by turns; messages are function calls."""

from collections import deque
from collections.abc import Sequence

from engine.runtime.build import load_target, new_drafter, new_target, sampling_of
from engine.runtime.clock import now_s
from engine.runtime.content import NOTHING, Content
from engine.runtime.executors import DraftExecutor, VerifyExecutor
from engine.runtime.memory import with_admission
from engine.runtime.worker import Worker
from fleet.records.recorded import Log, RecordedStation
from fleet.records.run import Run, make_run
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.workload import requests_of
from fleet.stations.build import drafter_station, join_of, verifier_station
from fleet.stations.messages import Draft, DraftRequest, Finished, Instruction, Leave, Refusal, StationEvent


def serve_colocated(  # noqa: C901  (three small closures around one loop)
    scenario: Scenario, prompts: Sequence[Sequence[int]]
) -> tuple[Run, dict[int, list[int]]]:
    """Run the scenario in this process; return its records and the new tokens of each request."""
    fleet = settle(scenario)
    seed, sampling = fleet.seed, sampling_of(fleet)
    model = load_target(fleet)
    room = fleet.verifiers.count, fleet.room.longest_row
    target = new_target(fleet, model, room=room)
    executor = VerifyExecutor(target, prompts, seed, sampling, fleet.drafters.kind == "eagle", fleet.room.overshoot)
    log: Log = []
    inbox: deque[tuple[Worker, StationEvent, Content]] = deque()
    zero_s = now_s()

    def post(instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, DraftRequest | Leave):
            inbox.append((drafter, instruction, content))
        elif isinstance(instruction, Draft | Refusal):
            inbox.append((verifiers[instruction.tag], instruction, content))
        elif isinstance(instruction, Finished):
            open_next(instruction.tag)

    def open_next(target: int) -> None:
        request = next(requests[target], None)
        if request is not None:
            inbox.append((verifiers[target], join_of(fleet, target, request), NOTHING))

    targets = range(fleet.verifiers.count)
    requests = [requests_of(fleet, target) for target in targets]
    verifiers = [
        Worker(
            RecordedStation(verifier_station(fleet, target), "real", log),
            executor,
            model.device,
            post,
            zero_s=zero_s,
        )
        for target in targets
    ]
    workers = list(verifiers)
    if fleet.drafters.count:
        draft_executor = DraftExecutor(new_drafter(fleet, model, room=room), seed, sampling)
        fleet = with_admission(fleet, model.device)
        station = RecordedStation(drafter_station(fleet), "real", log)
        drafter = Worker(station, draft_executor, model.device, post, zero_s=zero_s)
        workers.append(drafter)
    for target in targets:
        open_next(target)
    asking: deque[Worker] = deque()
    while inbox or any(worker.station.ready for worker in workers):
        while inbox:
            worker, event, content = inbox.popleft()
            worker.handle(event, content, now_s())
        asking += [worker for worker in workers if worker.station.ready and worker not in asking]
        if asking:
            asking.popleft().step()
    return make_run(scenario, "engine", log, fleet), executor.outputs
