"""Who looks at nodes while they work: what they are told is what the logs say, and nobody waits for them."""

import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing import Pipe

import pytest

pytest.importorskip("zmq")

from engine.launch.launcher_pipe import PROGRESS, LauncherPipe
from engine.launch.processes import NodeProcess
from engine.net.clock import now_s
from engine.node.observer import LOOK_S, PIECE, Observer, Together, observed
from fleet.errors import NodeDiedError
from fleet.records.counts import Counts, OfStation, OfTarget
from fleet.records.run import make_run
from fleet.records.schema import SCHEMA
from fleet.records.tables import commits_of
from fleet.scenario.settle import settle
from sim.run import simulate
from tests.helpers.bodies import answers_late, reports_and_dies, reports_much
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star


class Recorded:
    """A station's records, as an observer sees them."""

    def __init__(self, log: list[object], name: str = "drafter") -> None:
        self.log = log
        self.station = type("Station", (), {"name": name, "sessions": {}, "waiting": []})()


SCENARIO = star()
FLEET = settle(SCENARIO)
LOG = log_of_run(simulate(SCENARIO))


def test_the_last_that_is_told_is_all_that_the_log_says() -> None:
    told: list[Counts] = []
    with observed(FLEET, lambda: [Recorded(LOG)], now_s(), told.append):  # type: ignore[list-item]
        pass
    assert told[-1].committed == commits_of(make_run(SCENARIO, "sim", LOG).columns()).committed.sum() > 0
    assert sum(one.finished for one in told[-1].verifying) == SCENARIO.workload.requests


def test_stations_that_share_a_log_are_read_once_and_others_together() -> None:
    told: list[Counts] = []
    one, other, third = Recorded(LOG), Recorded(LOG, "verifier.1"), Recorded(list(LOG), "router")
    for stations in ([one, other], [one, third]):
        observer = Observer(FLEET, lambda of=stations: of, 0.0, told.append)  # type: ignore[misc,arg-type]
        observer.end()
    once, twice = told
    assert twice.committed == 2 * once.committed
    assert [len(each.stations) for each in told] == [2, 2]


def test_a_log_is_read_in_pieces_with_a_pause_between_for_whoever_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    Observer(FLEET, lambda: [Recorded(LOG)], 0.0, lambda _counts: None).end()  # type: ignore[list-item]
    rows = len(LOG) // len(SCHEMA)
    assert len(pauses) == -(-rows // PIECE) - 1
    assert min(pauses) > 0


def test_nobody_looks_where_nobody_watches() -> None:
    def stations() -> list[object]:
        raise AssertionError

    with observed(FLEET, stations, 0.0, None):  # type: ignore[arg-type]
        pass


# --- several processes ---


def of_target(number: int, committed: int, accepted: tuple[int, ...] = ()) -> OfTarget:
    return OfTarget(number, committed=committed, accepted=accepted)


def test_several_processes_are_told_together_once_each_has_reported_or_one_has_again() -> None:
    told: list[int] = []
    together = Together(lambda counts: told.append(counts.committed))
    one, other = (together.part(name) for name in ("one", "other"))
    report: Callable[[int], Counts] = lambda committed: Counts(1.0, (), (), (of_target(committed % 2, committed),))  # noqa: E731
    one(report(1))
    assert told == []
    other(report(10))
    assert told == [11]
    one(report(3))
    one(report(5))  # the other does not report any more
    assert told == [11, 13]
    together.end()
    together.end()
    assert told == [11, 13, 15]


def test_what_two_drafters_say_of_one_target_adds_up_place_by_place() -> None:
    told: list[Counts] = []
    together = Together(told.append)
    parts = [together.part(name) for name in ("drafter.1", "drafter.2")]
    targets = of_target(0, 5, (1, 2)), of_target(0, 7, (0, 1, 4))
    for number, (part, target) in enumerate(zip(parts, targets, strict=True)):
        part(Counts(1.0 + number, (OfStation(f"drafter.{number + 1}"),), (target, of_target(3 + number, 1))))
    (counts,) = told
    assert counts.time_s == 2.0
    assert [(one.target, one.committed, one.accepted) for one in counts.drafting] == [
        (0, 12, (1, 3, 4)), (3, 1, ()), (4, 1, ()),
    ]  # fmt: skip
    assert [one.name for one in counts.drafters] == ["drafter.1", "drafter.2"]


def test_what_a_process_did_before_it_was_started_again_stays_counted_and_nothing_of_it_is_open() -> None:
    told: list[Counts] = []
    together = Together(told.append)
    first = OfTarget(0, sessions=1, waiting=1, rounds=5, committed=20, queued=1)
    together.part("drafter")(
        Counts(3.0, (OfStation("drafter", 2.0, {"draft": (5, 1.5)}, sessions=1, waiting=1),), (first,))
    )
    second = OfTarget(0, sessions=1, rounds=2, committed=8)
    together.part("drafter")(
        Counts(9.0, (OfStation("drafter", 1.0, {"draft": (2, 0.5), "prefill": (1, 0.2)}, 1),), (second,))
    )
    counts = told[-1]
    assert counts.drafting == (OfTarget(0, sessions=1, rounds=7, committed=28),)
    assert counts.stations == (OfStation("drafter", 3.0, {"draft": (7, 2.0), "prefill": (1, 0.2)}, sessions=1),)
    assert counts.time_s == 9.0


# --- over the pipe ---


def test_reports_that_nobody_reads_are_dropped_and_hold_up_nobody() -> None:
    ours, theirs = Pipe()
    pipe = LauncherPipe(theirs, watched=True, room_s=0.0)
    for number in range(10_000):
        pipe.report("x" * 100 + str(number))
    read = 0
    while ours.poll():
        assert ours.recv()[0] == PROGRESS
        read += 1
    assert 10 < read < 10_000
    ours.close()
    pipe.report("nobody is there")


def test_a_launcher_that_waits_for_one_node_hears_the_others_reports() -> None:
    told: list[int] = []
    much = NodeProcess("much", reports_much, 200, light=True, watch=told.append)
    late = NodeProcess("late", answers_late, light=True)
    try:
        assert much.receive() == "ready"
        late.send("now, once the other has reported")
        much.send("go")
        assert late.receive(beside=[much]) == "late"
        assert much.receive() == "all"
    finally:
        much.end()
        late.end()
    assert told == list(range(200))


def test_what_a_node_that_dies_beside_has_reported_is_told_before() -> None:
    told: list[int] = []
    dies = NodeProcess("dies", reports_and_dies, light=True, watch=told.append)
    late = NodeProcess("late", answers_late, light=True)
    try:
        dies.process.join()
        with pytest.raises(NodeDiedError, match="dies died with exit code 3"):
            late.receive(beside=[dies])
    finally:
        dies.end()
        late.end()
    assert told == [1]


def test_what_is_sent_to_a_node_that_has_died_is_lost_and_its_end_is_told() -> None:
    """A target may be killed between its being ready and its time zero."""
    dies = NodeProcess("dies", reports_and_dies, light=True)
    try:
        dies.process.join()
        for number in range(2):
            dies.send(number)
        with pytest.raises(NodeDiedError, match="dies died with exit code 3"):
            dies.receive()
    finally:
        dies.end()


def test_a_run_is_told_twice_a_second_and_at_its_end_all_that_its_records_say() -> None:
    pytest.importorskip("torch")
    from engine.launch.serve import serve

    told: list[tuple[float, Counts]] = []
    replayed = {"kind": "replayed"}
    profile = {"draft": {"base_s": 0.002}, "verify": {"base_s": 0.01}}
    scenario = star(drafters=replayed, verifiers=replayed, profile=profile, workload={"requests": 12})
    run = serve(scenario, watch=lambda counts: told.append((now_s(), counts))).run
    rows, last = run.frame(), told[-1][1]
    commits = commits_of(run.columns()).frame()
    assert last.committed == commits.committed.sum()
    assert {one.target: one.committed for one in last.verifying} == commits.groupby("tag").committed.sum().to_dict()
    for station in last.stations:
        steps = rows[(rows.station == station.name) & (rows.event == "done")].groupby("kind").step.nunique()
        assert {kind: number for kind, (number, _) in station.steps.items()} == steps.to_dict()
    for (_, before), (_, after) in pairwise(told):
        assert after.committed >= before.committed
        assert after.time_s >= before.time_s
    assert len(told) <= 2 + told[-1][1].time_s / LOOK_S
