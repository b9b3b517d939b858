"""Stars of real stations with known events: constant times, and lengths of the test."""

import itertools
from collections.abc import Callable
from heapq import heappop, heappush

from fleet.policies.outcome import Outcome
from fleet.records.metrics.measure import measure
from fleet.records.metrics.window import with_percentiles
from fleet.records.recorder import RecordedStation
from fleet.records.run import Run, make_run
from fleet.scenario.names import DRAFTER, verifier_name
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import requests_of
from fleet.stations.build import join_of, stations
from fleet.stations.messages import Draft, DraftRequest, Finished, Instruction, Leave, Refusal, StationEvent, StepDone
from fleet.stations.station import Start
from fleet.times.step import Step

LINK_S, VERIFY_S = 1.0, 2.0
RETURN_S = 2 * LINK_S + VERIFY_S  # Z, equation (6)
REQUEST_BYTES, DRAFT_BYTES = 7, 40
SIZES = {DraftRequest: REQUEST_BYTES, Draft: DRAFT_BYTES}


class HandStar:
    """Real stations, constant step times by kind, links of LINK_S, accepted lengths from `accepted(draft tokens)`."""

    def __init__(self, scenario: Scenario, accepted: Callable[[int], int], durations_s: dict[str, float]) -> None:
        self.scenario = scenario
        self.accepted = accepted
        self.durations_s = durations_s
        self.resolved = resolve(scenario)
        built = stations(self.resolved)
        self.fleet = {name: RecordedStation(station, "simulated") for name, station in built.items()}
        self.requests = [requests_of(self.resolved, target) for target in range(scenario.verifiers.count)]
        self.agenda: list[tuple[float, int, str, StationEvent]] = []
        self.tickets = itertools.count()

    def run(self) -> Run:
        for target in range(self.scenario.verifiers.count):
            self._join_next(0.0, target)
        while self.agenda:
            now_s, _, name, event = heappop(self.agenda)
            for instruction in self.fleet[name].handle(event, now_s, SIZES.get(type(event), 0)):
                self._post(now_s, instruction)
            plan = self.fleet[name].plan(now_s)
            if isinstance(plan, Start):
                done = self._done(name, plan.step)
                self._at(now_s + done.duration_s, name, done)
        return make_run(self.scenario, "sim", [value for station in self.fleet.values() for value in station.log])

    def _at(self, time_s: float, name: str, event: StationEvent) -> None:
        heappush(self.agenda, (time_s, next(self.tickets), name, event))

    def _join_next(self, time_s: float, target: int) -> None:
        for request in itertools.islice(self.requests[target], 1):
            self._at(time_s, verifier_name(target), join_of(self.resolved, target, request))

    def _post(self, now_s: float, instruction: Instruction) -> None:
        if isinstance(instruction, DraftRequest | Leave):
            self._at(now_s + LINK_S, DRAFTER, instruction)
        elif isinstance(instruction, Draft | Refusal):
            self._at(now_s + LINK_S, verifier_name(instruction.tag), instruction)
        elif isinstance(instruction, Finished):
            self._join_next(now_s, instruction.tag)

    def _done(self, name: str, step: Step) -> StepDone:
        outcome = Outcome(self.accepted(step.members[0].tokens) if step.kind == "verify" else 0)
        kind = "drafter prefill" if name == DRAFTER and step.kind == "prefill" else step.kind
        return StepDone(step.number, (outcome,), self.durations_s.get(kind, 0.0))


def run_star(scenario: Scenario, accepted: Callable[[int], int], **durations_s: float) -> Run:
    return HandStar(scenario, accepted, {"draft": 1.0, "verify": VERIFY_S, **durations_s}).run()


def two_of_three(drafted: int) -> int:
    return min(2, drafted)


def values(run: Run) -> dict[str, float]:
    return {name: metric.value for name, metric in with_percentiles(measure(run)).items()}
