"""Logs that outlive their process, and messages that are dropped by a scenario's script."""

import os
from pathlib import Path

import msgspec
import numpy as np

from specfleet.engine.net.links import LossyLinks, lossy_links
from specfleet.engine.node.write_ahead_log import Life, WriteAheadLog, note_finished, open_log, read_log, unfinished
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.records.schema import WIDTH
from specfleet.fleet.scenario.faults import Fault, LinkFault, LinkFaults
from specfleet.fleet.scenario.workload import Request
from specfleet.fleet.stations.build import drafter_station, verifier_station
from specfleet.fleet.stations.messages import DraftRequest, Join, StepDone
from specfleet.fleet.stations.station import Start
from tests.helpers.toys import toy_fleet

FLEET = toy_fleet()
LOSSY = toy_fleet(verifiers={"patience_s": 0.2}, drafters={"lease_s": 1.0})


def test_a_row_is_in_the_log_when_the_call_returns(tmp_path: Path) -> None:
    life = Life(wal=tmp_path / "life", written=5)
    recorded = RecordedStation(drafter_station(FLEET), "real", open_log(life), life.written)
    recorded.handle(DraftRequest(0, 0, 1, 9, opening=True), 0.5, 60)
    assert read_log(tmp_path / "life").log == recorded.log
    plan = recorded.plan(0.6)
    assert isinstance(plan, Start)
    assert read_log(tmp_path / "life").log == recorded.log
    recorded.handle(StepDone(plan.step.number, (Outcome(np.int64(0), ratio=np.float64(0.5)),), 0.1), 0.7)  # type: ignore[arg-type]
    note_finished(recorded.log, 3, [7, 8])
    left = read_log(tmp_path / "life")
    assert left.log == recorded.log
    assert left.outputs == {3: [7, 8]}
    assert left.log[2] == 5, "rows go on where the life before ended"


def test_an_incomplete_entry_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "life"
    wal = WriteAheadLog(path)
    wal.finished(1, [4])
    whole = path.stat().st_size
    wal.finished(2, [5])
    for size in reversed(range(whole, path.stat().st_size)):
        os.truncate(path, size)
        assert read_log(path).outputs == {1: [4]}
    assert read_log(tmp_path / "none").log == []


def test_a_log_has_all_rows_of_a_step_or_none(tmp_path: Path) -> None:
    path = tmp_path / "life"
    fleet = toy_fleet(verifiers={"count": 1, "max_num_seqs": 2}, workload={"streams": 2})
    recorded = RecordedStation(verifier_station(fleet, 0), "real", open_log(Life(wal=path)))
    for tag in range(2):
        recorded.handle(Join(tag, tag, 8, 24), 0.0)
    sizes = [path.stat().st_size]
    plan = recorded.plan(0.1)
    assert isinstance(plan, Start)
    sizes.append(path.stat().st_size)
    recorded.handle(StepDone(plan.step.number, (Outcome(), Outcome()), 0.1), 0.2)
    sizes.append(path.stat().st_size)
    for size in reversed(range(sizes[0], sizes[-1] + 1)):
        os.truncate(path, size)
        rows = 2 * sum(size >= whole for whole in sizes)
        assert read_log(path).log == recorded.log[: rows * WIDTH]


def test_a_later_life_continues_unfinished_requests() -> None:
    streams = {0: [Request(0, 8, 24), Request(2, 8, 24)], 1: [Request(1, 8, 24)]}
    left = unfinished(streams, Life(1, finished=frozenset({0, 1})))
    assert left == {0: [Request(2, 8, 24)]}


# Lossy links.


def links(*faults: Fault, life: int = 0) -> LossyLinks:
    found = lossy_links(msgspec.structs.replace(LOSSY, faults=faults), 0, life)
    assert found is not None
    found.zero_s = 100.0
    return found


def test_link_faults_of_the_first_life_are_those_simulated() -> None:
    fault, times_s = LinkFault("drop", 0.3), [100.0 + 0.01 * number for number in range(200)]
    for target, way in ((0, "up"), (1, "up"), (1, "down")):
        rng = np.random.default_rng([LOSSY.seed, 3, target, 0, way == "up"])
        simulated = LinkFaults([fault], "drafter", f"verifier.{target + 1}", rng)
        kept = [bool(simulated.copies(time_s - 100.0)) for time_s in times_s]
        first, later = links(fault), links(fault, life=1)
        assert [bool(list(first.arrivals_s(target, way, time_s))) for time_s in times_s] == kept  # type: ignore[arg-type]
        assert [bool(list(later.arrivals_s(target, way, time_s))) for time_s in times_s] != kept  # type: ignore[arg-type]


def test_late_messages_delay_those_behind_them() -> None:
    delayed = links(LinkFault("delay", 0.5, 0.2))
    arrivals = [list(delayed.arrivals_s(0, "up", 100.0 + 0.001 * number)) for number in range(100)]
    times_s = [arrives_s for copies in arrivals for arrives_s in copies]
    assert times_s == sorted(times_s)
    assert max(times_s) > 100.15
    twice = list(links(LinkFault("duplicate", 1.0, 0.2)).arrivals_s(0, "down", 100.0))
    assert twice[0] == 100.0 < twice[1] <= 100.2


def test_without_link_faults_messages_are_not_touched() -> None:
    assert lossy_links(LOSSY, 0) is None
