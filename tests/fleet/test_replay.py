"""Law 1 for simulated logs: they replay, and two planted faults are found.

Every field of every message survives its record: replay would else end without a word.
"""

from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest

from specfleet.fleet.policies.order import Fifo
from specfleet.fleet.records.recorder import RecordedStation, event_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import WIDTH, Row
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import StationEvent, StepDone
from specfleet.fleet.stations.station import Station
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of
from tests.helpers.stars import star

LOG = simulate(star(workload={"requests": 6, "new_tokens": 12}))
MESSAGES = [kind for kind in get_args(StationEvent) if kind is not StepDone]
VALUES: dict[Any, Any] = {int: 7, bool: True, str: "a reason", float: 0.25, tuple: (3, 64)}


def test_a_log_replays_after_it_was_shuffled_between_stations() -> None:
    """Only each station's own order counts: clocks of several hosts need not agree."""
    run = simulate(star())
    by_station = run.table.sort_by([("station", "descending"), ("seq", "ascending")])
    assert replay(Run(run.header, by_station)) == []


def test_a_drafter_that_serves_the_last_request_first_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = star(verifiers={"count": 8})  # beyond N_full: requests do wait
    monkeypatch.setattr(Fifo, "pick", lambda self, waiting: len(waiting) - 1)  # noqa: ARG005
    run = simulate(scenario, path="simpy")  # the compiled loop has no `pick` to put another in the place of
    monkeypatch.undo()
    assert any("drafter" in line and "replay plans" in line for line in replay(run))


def test_a_dropped_row_is_found() -> None:
    for position in range(LOG.table.num_rows):
        kept = pa.concat_tables([LOG.table.slice(0, position), LOG.table.slice(position + 1)])
        assert replay(Run(LOG.header, kept)) != [], position


def test_replay_finds_lost_messages_that_matter() -> None:
    """Drop an event and renumber the rest, as if the recorder had missed it."""
    names = LOG.table.column_names
    station, event, seq = (names.index(name) for name in ("station", "event", "seq"))
    for position in range(LOG.table.num_rows):
        rows = [list(row.values()) for row in LOG.table.to_pylist()]
        lost = rows.pop(position)
        for row in rows[position:]:
            row[seq] -= row[station] == lost[station]
        contradictions = replay(make_run(LOG.header.scenario, "sim", log_of(rows), LOG.header.fleet))
        # A tag that returns was released anyway, and one that does not has no later events.
        assert contradictions or lost[event] == "leave", lost


def test_a_changed_outcome_is_found() -> None:
    rows = LOG.table.to_pylist()
    changed = next(row for row in rows if row["kind"] == "verify" and row["event"] == "done" and row["accepted"] > 0)
    changed["accepted"] -= 1
    (line,) = replay(Run(LOG.header, pa.Table.from_pylist(rows, schema=LOG.table.schema)))
    told = line.partition(f"; tag {changed['tag']} before: ")[2].split("; ")  # what had led there
    assert any(row.startswith(f"done of step {changed['step']} (verify) for tag {changed['tag']}, ") for row in told)
    assert len(told) == 4


def test_a_log_of_another_fleet_is_refused() -> None:
    smaller = msgspec.structs.replace(LOG.header, fleet=resolve(star(verifiers={"count": 1})))
    assert "has no such station" in replay(Run(smaller, LOG.table))[0]


def example(field: Any) -> Any:
    return VALUES[getattr(field.type, "__origin__", field.type)]


class Deaf(Station):
    """A station that does nothing with what it receives."""

    def __init__(self) -> None:
        self.name, self.running = "station", None

    def handle(self, event: StationEvent, now_s: float) -> list[Any]:
        return []


def recorded(message: Any) -> Row:
    station = RecordedStation(Deaf(), "simulated")
    station.handle(message, 1.5, 99)
    assert len(station.log) == WIDTH
    return Row(*station.log)


@pytest.mark.parametrize("kind", MESSAGES)
def test_no_field_is_lost_alone(kind: type[msgspec.Struct]) -> None:
    """A message that differs in one field has another record."""
    plain: Any = kind(**{field.name: type(example(field))() for field in msgspec.structs.fields(kind)})
    row = recorded(plain)
    assert event_of(row) == plain
    assert (row.time_s, row.payload_bytes) == (1.5, 99)
    for field in msgspec.structs.fields(kind):
        other = msgspec.structs.replace(plain, **{field.name: example(field)})
        assert recorded(other) != row, field.name
        assert event_of(recorded(other)) == other
