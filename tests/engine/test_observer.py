"""Observers of nodes: their reports equal the logs, and no worker waits for them."""

import time
from itertools import pairwise
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from specfleet.engine.launch.bodies import PROGRESS, LauncherPipe
from specfleet.engine.launch.places import Place
from specfleet.engine.launch.processes import NodeProcess
from specfleet.engine.launch.serve import Launch, serve
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.observer import LOOK_S, PIECE, Observer, observed, watched
from specfleet.engine.node.write_ahead_log import Life
from specfleet.fleet.errors import NodeDiedError
from specfleet.fleet.records.metrics.tables import commits_of
from specfleet.fleet.records.progress import Progress
from specfleet.fleet.records.recorder import Log, ReportedRows
from specfleet.fleet.records.run import make_run
from specfleet.fleet.records.schema import WIDTH
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim.run import simulate
from tests.helpers.light import answers_late, reports_and_dies, reports_much
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star

SCENARIO = star()
LOG = log_of_run(simulate(SCENARIO))
COMMITTED = commits_of(make_run(SCENARIO, "sim", LOG, resolve(SCENARIO)).columns()).committed.sum()


def looks(*observed_logs: Log, take: object = None) -> Observer:
    return Observer(lambda: [SimpleNamespace(log=log) for log in observed_logs], 0.0, take)  # type: ignore[misc,arg-type]


def test_the_last_report_completes_the_log() -> None:
    seen: list[Progress] = []
    with watched(seen.append) as take, observed(lambda: [SimpleNamespace(log=LOG)], now_s(), take):  # type: ignore[list-item]
        pass
    assert seen[-1].tokens == COMMITTED > 0
    assert not seen[-1].goals


def test_a_log_that_stations_share_is_read_once() -> None:
    shared, apart = Progress(), Progress()
    looks(LOG, LOG, take=lambda report: shared.take(report) or True).end()
    looks(LOG, list(LOG), take=lambda report: apart.take(report) or True).end()
    assert shared.tokens == COMMITTED
    assert apart.rounds > shared.rounds


def test_a_log_is_read_in_pieces_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    looks(LOG, take=lambda _report: True).end()
    rows = len(LOG) // WIDTH
    assert len(pauses) == -(-rows // PIECE)
    assert min(pauses) > 0


def test_a_half_written_row_is_left_for_later() -> None:
    reports: list[ReportedRows] = []
    log = LOG[: 3 * WIDTH - 1]
    observer = looks(log, take=lambda report: reports.append(report) or True)
    observer.end()
    log += LOG[3 * WIDTH - 1 : 4 * WIDTH]
    observer.end()
    assert [value for report in reports for value in report.rows] == log


def test_rows_that_could_not_be_reported_are_reported_again() -> None:
    reports: list[ReportedRows] = []
    answers = iter([True, False])
    observer = looks(LOG, take=lambda report: (reports.append(report), next(answers, True))[1])
    observer.end()
    assert len(reports) == 2
    del reports[-1]  # the report failed
    observer.end()
    assert [value for report in reports for value in report.rows] == LOG


def test_an_unwatched_node_is_not_observed() -> None:
    def stations() -> list[object]:
        raise AssertionError

    with observed(stations, 0.0, None):  # type: ignore[arg-type]
        pass


def test_a_watch_is_called_periodically_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    time_s, called = 0.0, []
    monkeypatch.setattr("specfleet.engine.node.observer.now_s", lambda: time_s)
    with watched(lambda progress: called.append(progress.time_s)) as take:
        assert take is not None
        for number in range(1, 41):
            time_s = 0.05 * number
            take(ReportedRows(time_s, []))
        assert len(called) == 2 / LOOK_S
        take(ReportedRows(2.01, []))
    assert called[-1] == 2.01


# --- over the pipe ---


def test_unread_reports_are_dropped_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specfleet.engine.launch.bodies.REPORT_S", 0.0)
    ours, theirs = Pipe()
    pipe = LauncherPipe(theirs, watched=True)
    for number in range(10_000):
        pipe.report("x" * 100 + str(number))
    read = 0
    while ours.poll():
        assert ours.recv()[0] == PROGRESS
        read += 1
    assert 10 < read < 10_000
    ours.close()
    assert not pipe.report("nobody is there")


def test_a_launcher_reads_all_reports_while_it_waits_for_one() -> None:
    reports_seen: list[int] = []
    much = NodeProcess("much", reports_much, 200, light=True, watch=reports_seen.append)
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
    assert reports_seen == list(range(200))


def test_reports_of_a_dead_node_precede_its_error_and_messages_to_it_are_lost() -> None:
    """A target may be killed between its ready message and its time zero."""
    reports_seen: list[int] = []
    dies = NodeProcess("dies", reports_and_dies, light=True, watch=reports_seen.append)
    late = NodeProcess("late", answers_late, light=True)
    try:
        dies.process.join()
        for number in range(2):
            dies.send(number)
        for waiting in (lambda: late.receive(beside=[dies]), dies.receive):
            with pytest.raises(NodeDiedError, match="dies died with exit code 3"):
                waiting()
    finally:
        dies.end()
        late.end()
    assert reports_seen == [1]


def test_progress_forgets_the_sessions_of_a_killed_process(tmp_path: Path) -> None:
    log = [value for row in zip(*[iter(LOG)] * WIDTH, strict=True) if row[1] == "drafter" for value in row]
    progress = Progress()
    progress.take(ReportedRows(0.0, log[: WIDTH * 20]))
    assert progress.sessions
    place = Place("drafter", "drafter", lambda: None)
    place.life, place.state = Life(wal=tmp_path / "drafter.1.wal"), "serving"
    place.node = SimpleNamespace(kill=lambda: None)  # type: ignore[assignment]
    launch = Launch(resolve(star()), (), {}, lambda report: progress.take(report) or True, power=False, zero_s=now_s())
    launch._kill(place)
    assert not progress.sessions
    assert not progress.running


def test_a_watched_run_reports_all_its_records() -> None:
    reports_seen: list[tuple[float, float, int]] = []
    last: list[Progress] = []

    def watch(progress: Progress) -> None:
        reports_seen.append((now_s(), progress.time_s, progress.tokens))
        last[:] = [progress]

    replayed = {"kind": "replayed"}
    profile = {"draft": {"base_s": 0.002}, "verify": {"base_s": 0.01}}
    scenario = star(drafters=replayed, verifiers=replayed, profile=profile, workload={"requests": 12})
    run = serve(scenario, watch=watch).run
    rows, (progress,) = run.frame(), last
    assert progress.tokens == commits_of(run.columns()).committed.sum()
    assert progress.rounds == ((rows.event == "done") & (rows.kind == "verify")).sum()
    assert not progress.goals
    for (_, before_s, before), (_, after_s, after) in pairwise(reports_seen):
        assert after >= before
        assert after_s >= before_s
    assert len(reports_seen) <= 2 + reports_seen[-1][1] / LOOK_S
