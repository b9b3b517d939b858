"""A worker of one station: in which order it is told what happened."""

from contextlib import nullcontext

import pytest

pytest.importorskip("zmq")

from engine.net.actions import Arrival
from engine.net.clock import now_s
from engine.net.content import NOTHING, Content
from engine.node.worker import WALL, Stop, Worker
from fleet.records.recorded import RecordedStation
from fleet.records.schema import Row
from fleet.stations.build import verifier_station
from fleet.stations.messages import Draft, DraftRequest, Finished, Join, StationEvent
from tests.helpers.toys import ToyTarget, toy_fleet

TOKENS = 6


@pytest.mark.parametrize("is_late", [False, True], ids=["came during a step", "came after its end"])
def test_what_came_after_the_end_of_a_step_is_told_after_it(is_late: bool) -> None:
    """The thread may be held up between a step's end and the reading of what came, or the other way round."""
    fleet = toy_fleet(verifiers={"count": 1}, workload={"requests": 2, "new_tokens": TOKENS})
    told: list[tuple[float, str]] = []
    held_back: list[StationEvent] = [Join(1, 1, 8, TOKENS)]

    class Told(RecordedStation):
        """Keeps what it is told, and when that happened."""

        def handle(
            self, event: StationEvent, time_s: float, payload_bytes: int = 0, core_wait_s: float = 0.0
        ) -> list[object]:
            told.append((time_s, type(event).__name__))
            return super().handle(event, time_s, payload_bytes, core_wait_s)

    def post(instruction: object, _content: Content) -> None:
        if isinstance(instruction, DraftRequest):
            draft = Draft(instruction.tag, instruction.request, instruction.epoch, instruction.base, 1)
            node.inbox.put(Arrival(draft, Content([0]), now_s()))
        elif isinstance(instruction, Finished) and instruction.request == 1:
            node.inbox.put(Stop())

    class Held(ToyTarget):
        """What comes during its first step is read after it."""

        def run(self, step: object) -> object:
            if not is_late and held_back:
                node.inbox.put(Arrival(held_back.pop(), NOTHING, now_s()))
            return super().run(step)

    def control_s() -> float:
        if is_late and held_back:
            node.inbox.put(Arrival(held_back.pop(), NOTHING, now_s()))
        return 0.0

    node = Worker(
        Told(verifier_station(fleet, 0), "replayed"),
        Held(),
        post,
        WALL._replace(control_s=control_s),
        zero_s=now_s(),
    )
    node.inbox.put(Arrival(Join(0, 0, 8, TOKENS), NOTHING, now_s()))
    node.run()
    assert told == sorted(told, key=lambda each: each[0])
    names = [name for _, name in told]
    assert names.index("Join", 1) == names.index("StepDone") + (1 if is_late else -1)


def test_what_the_thread_waited_for_a_core_is_told_with_the_end_of_a_step_and_with_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It held up what was sent, and what began; who had the device before may have waited, too."""
    fleet = toy_fleet(verifiers={"count": 1}, drafters={"count": 0}, workload={"requests": 1, "new_tokens": TOKENS})
    own_s, of_others_s = 0.25, 0.5

    def post(instruction: object, _content: Content) -> None:
        if isinstance(instruction, Finished):
            node.inbox.put(Stop())

    recorded = RecordedStation(verifier_station(fleet, 0), "replayed")
    node = Worker(recorded, ToyTarget(), post, lock=lambda _waited_s: nullcontext(of_others_s), zero_s=now_s())
    monkeypatch.setattr(node.waits, "held_up_s", lambda: own_s)
    node.inbox.put(Arrival(Join(0, 0, 8, TOKENS), NOTHING, now_s()))
    node.run()
    width = len(Row._fields)
    rows = [Row(*recorded.log[place : place + width]) for place in range(0, len(recorded.log), width)]
    waited_s = {event: {row.core_wait_s for row in rows if row.event == event} for event in ("join", "start", "done")}
    assert waited_s == {"join": {0.0}, "start": {own_s + of_others_s}, "done": {own_s}}
