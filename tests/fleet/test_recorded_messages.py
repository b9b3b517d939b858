"""Every field of every message survives its record: replay would else end without a word."""

from typing import Any, get_args

import msgspec
import pytest

from specfleet.fleet.records.recorder import RecordedStation, event_of
from specfleet.fleet.records.schema import WIDTH, Row
from specfleet.fleet.stations.messages import StationEvent, StepDone
from specfleet.fleet.stations.station import Station

MESSAGES = [kind for kind in get_args(StationEvent) if kind is not StepDone]
VALUES: dict[Any, Any] = {int: 7, bool: True, str: "a reason", float: 0.25}


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
