"""The replay test: a log's events, fed to fresh stations, must give exactly the logged plans (law 1)."""

from collections.abc import Callable, Mapping

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import event_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.records.schema import Row
from specfleet.fleet.stations.build import stations
from specfleet.fleet.stations.messages import StepDone
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.times.step import Step

TOLD = 4  # rows of a tag that a contradiction tells


def replay(run: Run) -> list[str]:
    """Feed the log to fresh stations of its scenario; return the contradictions in order, empty if there are none.

    Each is a line: the station, its event, what is logged and what replay does, and the last rows of that stream.
    A station is dropped at its first contradiction, because later ones would repeat it.
    """
    fleet = run.header.fleet
    return replay_stations(run, stations(fleet), lambda name: stations(fleet)[name])


def replay_stations(run: Run, fresh: Mapping[str, Station], again: Callable[[str], Station] | None = None) -> list[str]:
    """Feed the log to these fresh stations, or to wrappers that observe them, by name; return as `replay`.

    - `again(name)`: builds a fresh station after its process died and restarted.
    """
    if not run.header.steps:
        return ["it has no steps: only the answers of a server are known"]
    logs: dict[str, list[Row]] = {name: [] for name in fresh}
    for values in zip(*(column.to_pylist() for column in run.table.columns), strict=True):
        row = Row(*values)
        if row.station not in fresh:
            return [f"{row.station}: the scenario has no such station"]
        logs[row.station].append(row)
    contradictions: list[str] = []
    for name, station in fresh.items():
        rows, written = sorted(logs[name], key=lambda row: row.seq), run.header.rows.get(name, 0)
        contradiction = _replay_station(station, rows, again)
        if not contradiction and len(rows) != written:
            contradiction = f"{name}: the log ends at event {len(rows)} of {written}"
        if contradiction:
            contradictions.append(contradiction)
    return contradictions


def _replay_station(station: Station, rows: list[Row], again: Callable[[str], Station] | None) -> str | None:
    position = 0
    while position < len(rows):
        row = rows[position]
        if row.seq != position:
            return f"{station.name}: event {position} is missing from the log"
        if again is not None and row.event in ("killed", "restart"):
            station = again(station.name)
        try:
            position += _repeat(station, rows, position)
        except ValueError as error:  # also of inputs that no sound log contains, such as more accepted than drafted
            return f"{station.name}: event {position}: {error}; {_story(rows, position)}"
    if station.running is not None:
        return f"{station.name}: the log ends while step {station.running.number} ({station.running.kind}) runs"
    return None


def _repeat(station: Station, rows: list[Row], position: int) -> int:
    """Let the station handle a row's event, or plan its step; return its rows. ValueError if it does something else."""
    row, step = rows[position], station.running
    if row.event == "start":
        plan = station.plan(row.time_s)
        planned = plan.step if isinstance(plan, Start) else None
        members = 1 if planned is None else len(planned.members)
        if planned is None or _logged_step(rows[position : position + members]) != _planned_step(planned):
            raise ValueError(f"logs {_short(row)}, replay plans {planned}")
        return members
    if row.event == "done":
        if step is None or step.number != row.step:
            raise ValueError(f"ends step {row.step}, replay runs {step}")
        ended = rows[position : position + len(step.members)]
        station.handle(StepDone(row.step, tuple(map(outcome_of, ended)), row.duration_s), row.time_s)
        return len(step.members)
    if row.event != "killed":
        station.handle(event_of(row), row.time_s)
    return 1


def _story(rows: list[Row], position: int) -> str:
    """Return the last rows of a row's tag before it."""
    tag = rows[position].tag
    before = [row for row in rows[:position] if row.tag == tag][-TOLD:]
    return f"tag {tag} before: {'; '.join(map(_short, before)) or 'nothing'}"


def outcome_of(row: Row) -> Outcome:
    """Return the outcome of the row's member in the step."""
    drafted = row.tokens if row.kind == "draft" else -1
    entropies, found = tuple(row.entropies), row.flag
    return Outcome(row.accepted, row.matches, drafted, row.ratio, tuple(row.klds), entropies, found)


def _logged_step(rows: list[Row]) -> tuple[object, ...]:
    return rows[0].step, tuple((row.kind, row.tag, row.request, row.epoch, row.base, row.tokens) for row in rows)


def _planned_step(step: Step) -> tuple[object, ...]:
    return step.number, tuple((step.kind_of(m), m.tag, m.request, m.epoch, m.base, m.tokens) for m in step.members)


def _short(row: Row) -> str:
    what = f"{row.event} of step {row.step} ({row.kind})" if row.kind else row.event
    return f"{what} for tag {row.tag}, request {row.request}, epoch {row.epoch}, base {row.base}, tokens {row.tokens}"
