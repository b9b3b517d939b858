"""A router's station inside the process of all targets: they reach it by a call, and its steps take no time."""

from collections.abc import Callable

from fleet.policies.outcome import Outcome
from fleet.records.recorded import Log, RecordedStation
from fleet.scenario.settled import Fleet
from fleet.stations.build import router_station
from fleet.stations.messages import Instruction, Routed, StationEvent, StepDone
from fleet.stations.station import Start


class InnerRouter:
    """Hands what the targets of its process send to `route`, each request with its drafter's number, and when."""

    def __init__(self, fleet: Fleet, route: Callable[[Routed, float], None], zero_s: float, log: Log) -> None:
        self.recorded = RecordedStation(router_station(fleet), "real", log)
        self.route = route
        self.zero_s = zero_s

    def deliver(self, event: StationEvent, time_s: float, payload_bytes: int = 0) -> None:
        """Take a request of a target, or news of a drafter; send on what has a drafter by now."""
        run_s = time_s - self.zero_s
        self._obey(self.recorded.handle(event, run_s, payload_bytes), time_s)
        while self.recorded.station.ready:
            plan = self.recorded.plan(run_s)
            assert isinstance(plan, Start)
            self._obey(self.recorded.handle(StepDone(plan.step.number, (Outcome(),), 0.0), run_s), time_s)

    def _obey(self, instructions: list[Instruction], time_s: float) -> None:
        for instruction in instructions:
            if isinstance(instruction, Routed):
                self.route(instruction, time_s)
