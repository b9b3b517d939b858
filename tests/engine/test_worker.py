"""A worker of one station: the order of its events."""

import math

import pytest

from engine.net.actions import Deliver
from engine.net.clock import now_s
from engine.net.content import Content
from engine.node.worker import Stop, Worker
from fleet.records.recorder import RecordedStation
from fleet.stations.build import verifier_station
from fleet.stations.messages import Draft, DraftRequest, Finished, Join, StationEvent
from tests.helpers.toys import ToyTarget, toy_fleet

TOKENS = 6


@pytest.mark.parametrize("is_late", [False, True], ids=["came during a step", "came after its end"])
def test_arrivals_after_a_step_follow_its_end(is_late: bool) -> None:
    """The thread may be delayed between a step's end and the reading of arrivals, or the other way round."""
    fleet = toy_fleet(verifiers={"count": 1}, workload={"requests": 2, "new_tokens": TOKENS})
    events: list[tuple[float, str]] = []
    held_back: list[StationEvent] = [Join(1, 1, 8, TOKENS)]

    class EventRecorder(RecordedStation):
        """A station that records its events and their times."""

        def handle(self, event: StationEvent, time_s: float, payload_bytes: int = 0) -> list[object]:
            events.append((time_s, type(event).__name__))
            return super().handle(event, time_s, payload_bytes)

    def post(instruction: object, _content: Content) -> None:
        if isinstance(instruction, DraftRequest):
            draft = Draft(instruction.tag, instruction.request, instruction.epoch, instruction.base, 1)
            node.inbox.put((now_s(), Deliver(draft, Content([0]))))
        elif isinstance(instruction, Finished) and instruction.request == 1:
            node.inbox.put(Stop())

    class LateReader(ToyTarget):
        """Events of its first step are read after it."""

        def run(self, step: object) -> object:
            if not is_late and held_back:
                node.inbox.put((now_s(), Deliver(held_back.pop())))
            return super().run(step)

    class Interrupted(Worker):
        """A message arrives between the end of its first step and the reading of arrivals."""

        def _drain(self, by_s: float = math.inf) -> None:
            if is_late and held_back and by_s < math.inf:
                self.inbox.put((now_s(), Deliver(held_back.pop())))
            super()._drain(by_s)

    node = Interrupted(EventRecorder(verifier_station(fleet, 0), "replayed"), LateReader(), post, zero_s=now_s())
    node.inbox.put((now_s(), Deliver(Join(0, 0, 8, TOKENS))))
    node.run()
    assert events == sorted(events, key=lambda each: each[0])
    names = [name for _, name in events]
    assert names.index("Join", 1) == names.index("StepDone") + (1 if is_late else -1)
