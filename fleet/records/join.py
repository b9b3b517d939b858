"""Records of the nodes of one fleet, which ran on several hosts, as one run on one clock.

Each host has its own clock. Messages between hosts show how far their clocks are apart: of the quickest messages there
and back, one seems as much too slow as the other too quick. That both took equally long is assumed; the error is at
most half of both together. Where messages come back by a third host only, the same holds for the whole way around.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.columns import array_of, numbers_of
from specfleet.fleet.records.playback import Way, ways_of
from specfleet.fleet.records.power import DeviceCurve
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.named_files import without_paths
from specfleet.fleet.stations.build import stations

WINDOW_S = 20.0  # of a run, in which two clocks stay together
MAX_WINDOWS = 12

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Clock(msgspec.Struct, frozen=True):
    """The clock of one file.

    Keys:
        name: The file.
        stations: Its stations.
        ahead_s: By how much it is ahead of the first file's clock, when that one shows 0.
        drift: By how much more with each second.
        error_s: The most by which that can be wrong, if clocks drift evenly.
    """

    name: str
    stations: tuple[str, ...]
    ahead_s: float = 0.0
    drift: float = 0.0
    error_s: float = 0.0


class Joined(msgspec.Struct, frozen=True):
    """One run of several files; `clocks` of the files, and `links` between them (`_links`)."""

    run: Run
    clocks: tuple[Clock, ...]
    links: pd.DataFrame


def join_runs(named: Sequence[tuple[str, Run]]) -> Joined:
    """Join the records of a fleet's nodes, each with its file's name; the clock is the first file's.

    Raises InputError for records of several scenarios, for a station that is missing or there twice, for a target
    that was started again, and for a file without messages to the others and back.
    """
    together = _together(named)
    files = {station: name for name, run in named for station in run.header.rows}
    ways = ways_of(together)
    clocks = _clocks([name for name, run in named if run.header.rows], files, ways)
    table = together.table
    owners = [files[station] for station in table["station"].to_pylist()]
    time_s = _on_first(numbers_of(table["time_s"]), owners, clocks)
    first_s = float(time_s.min())
    time_s -= first_s
    table = table.set_column(table.schema.get_field_index("time_s"), "time_s", array_of(time_s, pa.float64()))
    table = table.take(array_of(np.lexsort((numbers_of(table["seq"]), time_s)), pa.int64()))
    header = msgspec.structs.replace(together.header, devices=_devices(named, clocks, first_s))
    joined = Run(header, table)
    return Joined(joined, tuple(clocks.values()), _links(files, ways_of(joined)))


def _together(named: Sequence[tuple[str, Run]]) -> Run:
    """Return one run of all rows, each by its own clock."""
    if not named:
        raise InputError("join: no file is named; name the records of all nodes")
    (first_name, first), *_ = named
    rows: dict[str, int] = {}
    streams = first.header.fleet.streams or first.header.fleet.workload.requests
    for name, run in named:
        if run.header.world != "engine" or not run.header.steps:
            raise InputError(f"{name}: needs the records that a node wrote with -o")
        if without_paths(run.header.scenario) != without_paths(first.header.scenario):
            raise InputError(f"{name}: is of another scenario than {first_name}")
        if twice := sorted(rows.keys() & run.header.rows.keys()):
            raise InputError(f"{name}: has the records of {twice[0]}, which another file has, too")
        table = run.columns()
        if table.tag[table.event.among("draft-request")].max(initial=0) >= streams:
            raise InputError(f"{name}: has requests of a target that was started again; join a run without restarts")
        rows |= run.header.rows
    missing = sorted(stations(first.header.fleet).keys() - rows.keys())
    if len(missing) > sum(not run.header.rows for _, run in named):  # a drafter that was never asked has no rows
        raise InputError(f"{first_name}: no file has the records of {missing[0]}; name those of all nodes")
    header = msgspec.structs.replace(
        first.header,
        rows=rows,
        host=first.header.host | {"files": str(len(named))},
        started_unix_s=min(run.header.started_unix_s for _, run in named),
    )
    return Run(header, pa.concat_tables([run.table for _, run in named]))


def _clocks(names: Sequence[str], files: Mapping[str, str], ways: Sequence[Way]) -> dict[str, Clock]:
    """Return the clocks by file; a clock drifts by what it differs between the windows of a run."""
    place = {station: names.index(file) for station, file in files.items()}
    if not ways:
        raise InputError(f"{names[0]}: no station sent a message to another; without messages clocks are unknown")
    pairs = np.array([(place[way.sender], place[way.receiver]) for way in ways])
    left_s = np.array([way.left_s for way in ways])
    taken_s = np.array([way.arrived_s for way in ways]) - left_s
    reach = _reach(len(names), pairs, taken_s)
    if lost := [name for name, there, back in zip(names, reach[0], reach[:, 0], strict=True) if there + back == np.inf]:
        raise InputError(f"{lost[0]}: no messages lead from its stations to those of {names[0]} and back")
    apart = [(0.0, *_apart(len(names), pairs, taken_s))]
    shown_s = left_s - apart[0][1][pairs[:, 0]]  # by the first clock, about
    edges = np.linspace(shown_s.min(), shown_s.max(), min(max(int(np.ptp(shown_s) / WINDOW_S), 1), MAX_WINDOWS) + 1)
    windows = np.clip(np.searchsorted(edges, shown_s, side="right") - 1, 0, len(edges) - 2)
    parts = [windows == number for number in range(len(edges) - 1)] if len(edges) > 2 else []
    whole = [part for part in parts if np.isfinite(_reach(len(names), pairs[part], taken_s[part])[0]).all()]
    if len(whole) > 1:
        apart = [(shown_s[part].mean(), *_apart(len(names), pairs[part], taken_s[part])) for part in whole]
    times_s, offsets_s, errors_s = (np.array(column) for column in zip(*apart, strict=True))
    drift, ahead_s = np.polyfit(times_s, offsets_s, 1) if len(apart) > 1 else (np.zeros(len(names)), offsets_s[0])
    errors_s = errors_s.max(axis=0) + np.abs(drift) * (edges[1] - edges[0]) / 2  # within a window clocks drift, too
    stations = {name: tuple(sorted(station for station, file in files.items() if file == name)) for name in names}
    return {
        name: Clock(name, stations[name], float(ahead_s[number]), float(drift[number]), float(errors_s[number]))
        for number, name in enumerate(names)
    }


def _apart(count: int, pairs: Ints, taken_s: Floats) -> tuple[Floats, Floats]:
    """Return by how much each clock is ahead of the first, and the most by which that can be wrong.

    The quickest message from i to j seems to take w + (ahead of j) - (ahead of i), for a way w of 0 or more. The sum of
    the squares of all w is the least; that no w is below 0 bounds what each clock can be.
    """
    least_s = _least(count, pairs, taken_s)
    linked = np.argwhere(np.isfinite(least_s) & ~np.eye(count, dtype=bool))
    sums = np.zeros((len(linked), count))
    sums[np.arange(len(linked)), linked[:, 1]], sums[np.arange(len(linked)), linked[:, 0]] = 1.0, -1.0
    ahead_s = np.zeros(count)
    ahead_s[1:] = np.linalg.lstsq(sums[:, 1:], least_s[tuple(linked.T)], rcond=None)[0]
    reach = _reach(count, pairs, taken_s)
    return ahead_s, np.maximum(reach[0] - ahead_s, ahead_s + reach[:, 0])


def _least(count: int, pairs: Ints, taken_s: Floats) -> Floats:
    """Return the time that the quickest message seems to take from file to file; infinite where there is none."""
    least_s = np.full((count, count), np.inf)
    np.minimum.at(least_s, tuple(pairs.T), taken_s)
    np.fill_diagonal(least_s, 0.0)
    return least_s


def _reach(count: int, pairs: Ints, taken_s: Floats) -> Floats:
    """Return the same along the shortest ways over other files."""
    least_s = _least(count, pairs, taken_s)
    for between in range(count):
        least_s = np.minimum(least_s, least_s[:, [between]] + least_s[[between], :])
    return least_s


def _first_s(times_s: Floats, clock: Clock) -> Floats:
    """Return what the first file's clock shows when a file's clock shows these times."""
    return (times_s - clock.ahead_s) / (1 + clock.drift)


def _on_first(time_s: Floats, owners: Sequence[str], clocks: Mapping[str, Clock]) -> Floats:
    """Return the rows' times by the first file's clock."""
    shown, of_row = time_s.copy(), np.array(owners)
    for name, clock in clocks.items():
        shown[of_row == name] = _first_s(time_s[of_row == name], clock)
    return shown


def _devices(named: Sequence[tuple[str, Run]], clocks: Mapping[str, Clock], first_s: float) -> tuple[DeviceCurve, ...]:
    """Return the measured devices of all files, by the joined clock."""
    return tuple(
        msgspec.structs.replace(
            curve, times_s=tuple((_first_s(np.array(curve.times_s), clocks[name]) - first_s).tolist())
        )
        for name, run in named
        if name in clocks
        for curve in run.header.devices
    )


def _links(files: Mapping[str, str], ways: Sequence[Way]) -> pd.DataFrame:
    """Return for each file with messages to another their number, median and least time, by the joined clock, from a
    step's end to the reading."""
    sent = pd.DataFrame(ways, columns=Way._fields)
    sender, receiver = sent.sender.map(files), sent.receiver.map(files)
    taken = sent.assign(sender=sender, receiver=receiver, taken_s=sent.arrived_s - sent.left_s)[sender != receiver]
    links = taken.groupby(["sender", "receiver"], sort=False, as_index=False)
    return links.agg(messages=("taken_s", "count"), median_s=("taken_s", "median"), least_s=("taken_s", "min"))
