"""Events of real nodes: timeouts of a client, sessions of a server, and the order of events at a worker."""

import math
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specfleet.engine.net.actions import Deliver, Opened, Send
from specfleet.engine.net.addresses import FREE
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.handshake import Hello
from specfleet.engine.net.keys import new_pair, read_keys
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node import worker as workers
from specfleet.engine.node.worker import Stop, Worker
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.stations.build import verifier_station
from specfleet.fleet.stations.messages import Draft, DraftRequest, Finished, Join, Leave, StationEvent
from specfleet.fleet.stations.session import ERA
from tests.helpers.connecting import content_of, delivered, frame_of, welcomed
from tests.helpers.toys import ToyTarget, toy_fleet

PATIENT = toy_fleet(verifiers={"patience_s": 0.2, "rejoin_s": 0.5}, drafters={"lease_s": 2.0})
OPENING = DraftRequest(0, 0, 1, 9, opening=True)
GIVEN_UP = Leave(0, 0, 1)
PROBE = DraftRequest(0, 0, ERA + 1, 12, opening=True, tokens=0)


def patient() -> tuple[ServerEnd, ClientEnd]:
    server, client = ServerEnd(PATIENT), ClientEnd(PATIENT, 0, 1)
    assert welcomed(server, client) == [Opened()]
    return server, client


def test_a_lost_connection_is_no_event_of_a_patient_station() -> None:
    server, client = patient()
    client.send(OPENING, content_of(OPENING), 0.0)
    assert delivered(client.lost(1.0)) == []
    assert delivered(welcomed(server, client, 10.0)) == []


def test_a_request_without_a_connection_is_sent_after_the_welcome() -> None:
    server, client = ServerEnd(PATIENT), ClientEnd(PATIENT, 0, 1)
    assert client.send(OPENING, content_of(OPENING), 0.0) == []
    opened, *sent = welcomed(server, client)
    assert opened == Opened()
    assert delivered(server.receive(b"peer", frame_of(sent), 0.0)) == [OPENING]


def test_a_finished_request_is_not_sent_after_the_welcome() -> None:
    server, client = ServerEnd(PATIENT), ClientEnd(PATIENT, 0, 1)
    client.send(OPENING, content_of(OPENING), 0.0)
    client.send(GIVEN_UP, NOTHING, 0.2)
    assert welcomed(server, client) == [Opened()]


def test_only_an_incarnation_that_goes_on_keeps_its_tags() -> None:
    server = ServerEnd(PATIENT)
    tags = []
    for life, goes_on in ((1, False), (2, True), (3, False)):
        client, peer = ClientEnd(PATIENT, 0, life, goes_on=goes_on), b"peer %d" % life
        welcomed(server, client, float(life), peer)
        frame = frame_of(client.send(OPENING, content_of(OPENING), float(life)))
        tags += [event.tag for event in delivered(server.receive(peer, frame, float(life)))]
        drafted = frame_of(server.send(Draft(tags[-1], 0, 1, 9, 0), NOTHING))
        assert delivered(client.receive(drafted, float(life))) == [Draft(0, 0, 1, 9, 0)]
        server.lost(peer)
    assert tags == [0, 0, 2]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(client.hello), type=Hello).goes_on is False


def test_a_leave_overtaken_by_its_sessions_return_is_dropped() -> None:
    server, client = patient()
    opening, left, back = (frame_of(client.send(each, content_of(each), 0.0)) for each in (OPENING, GIVEN_UP, PROBE))
    assert delivered(server.receive(b"peer", opening, 0.0)) == [OPENING]
    assert delivered(server.receive(b"peer", back, 0.6)) == [Leave(0, 0, 1), PROBE]
    assert delivered(server.receive(b"peer", left, 0.7)) == []
    assert server.send(Draft(0, 0, PROBE.epoch, 12, 0), NOTHING), "its session is still known"


@pytest.mark.parametrize("address", [FREE, "tcp://127.0.0.1:0", "tcp://[::1]:0"])
def test_the_end_of_a_peers_process_is_noticed(address: str, tmp_path: Path) -> None:
    secret, public = new_pair("node", tmp_path)
    keys = None if address == FREE else read_keys(secret, public, tmp_path)
    server = Sockets(address, keys=keys)
    client = Sockets(connect={0: server.bound}, keys=keys)
    peers: list[bytes] = []
    until_s = now_s() + 30.0
    while not peers and now_s() < until_s:
        client.send(Send(0, b"", b"here"))
        peers = [arrived.peer for arrived in server.poll(0.05)]
    assert server.gone() == []
    client.close()
    gone: list[bytes] = []
    while not gone and now_s() < until_s:
        server.poll(0.05)
        gone = server.gone()
    assert gone == peers[:1]
    server.close()


def test_a_resumed_worker_takes_arrivals_before_timeouts(monkeypatch: Any) -> None:
    """The draft arrived during the stop; its timeout has passed too."""
    fleet = toy_fleet(verifiers={"patience_s": 0.2, "count": 1}, workload={"requests": 1, "new_tokens": 2})
    posted: list[Any] = []
    recorded = RecordedStation(verifier_station(fleet, 0), "replayed")
    executor = ToyTarget()
    node = Worker(recorded, executor, lambda instruction, _content: posted.append(instruction), zero_s=now_s())
    node.inbox.put((now_s(), Deliver(Join(0, 0, 8, 2))))
    real = node.inbox.get

    class Inbox:
        """Wakes late, as after a stall, and gets the draft only then: the reading thread was stopped, too."""

        stalled = False
        put, empty = node.inbox.put, node.inbox.empty

        def get(self, timeout: float | None = None) -> Any:
            requests = [message for message in posted if isinstance(message, DraftRequest)]
            if requests and not self.stalled and timeout:
                self.stalled = True
                time.sleep(timeout + 2 * workers.STILL_S)
                draft = Draft(0, 0, requests[0].epoch, requests[0].base, 1)
                self.put((now_s(), Deliver(draft, Content([0]))))
                raise workers.queue.Empty
            if any(isinstance(message, Leave) for message in posted):
                return Stop()
            return real(timeout=timeout)

    monkeypatch.setattr(node, "inbox", Inbox())
    node.run()
    events = recorded.log
    assert "draft" in events
    assert "overdue" not in events


def test_a_worker_gives_up_a_silent_drafter_and_probes_it() -> None:
    fleet = toy_fleet(
        verifiers={"patience_s": 0.05, "rejoin_s": 0.05, "count": 1}, workload={"requests": 1, "new_tokens": 400}
    )
    posted: list[Any] = []
    recorded = RecordedStation(verifier_station(fleet, 0), "replayed")

    class Slow(ToyTarget):
        def run(self, step: Any) -> Any:
            time.sleep(0.001)
            return super().run(step)

    def post(instruction: Any, _content: Content) -> None:
        posted.append(instruction)
        if isinstance(instruction, Finished):
            node.inbox.put(Stop())

    node = Worker(recorded, Slow(), post, zero_s=now_s())
    node.inbox.put((now_s(), Deliver(Join(0, 0, 8, 400))))
    node.run()
    requests = [message for message in posted if isinstance(message, DraftRequest)]
    assert sum(isinstance(message, Finished) for message in posted) == 1
    assert requests[0].tokens == -1
    assert len(requests) > 2
    assert all(message.opening and message.tokens == 0 for message in requests[1:])


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
