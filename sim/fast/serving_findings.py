"""The tables of metrics, from the rows of the compiled loop of serving targets."""

import numpy as np

from fleet.records.columns import Bools, Column, Table, Words
from fleet.records.metrics.findings import Findings
from fleet.records.metrics.tables import with_differences
from fleet.records.schema import SCHEMA, Row
from fleet.scenario.resolved import Fleet
from sim.fast.findings import requests_of, words_of
from sim.fast.serving import CHUNK, DONE, DRAFT_PREFILL, DRAFTING, VERIFY, Array
from sim.fast.serving_arrays import ServingArrays
from sim.fast.table import EVENTS, KINDS, station_names


def findings_of_lines(fleet: Fleet, serving: ServingArrays, lines: Array) -> Findings:
    """Return the tables of a finished simulation. `rows` has no Arrow table: its columns are made when they are used."""
    rows, speculates = rows_of(fleet, lines), fleet.drafters.count > 0
    done, kind = lines["event"] == DONE, lines["kind"]
    drafts, leads = done & (kind == DRAFTING), done & lines["leads"]
    verified = np.flatnonzero(done & (kind == VERIFY))
    tags = np.repeat(serving.streams["tag"], np.diff(serving.streams["last"], prepend=-1))
    return Findings(
        fleet=fleet,
        commits=_commits(rows, lines, done & (kind != CHUNK) & (kind != DRAFTING) & (kind != DRAFT_PREFILL)),
        requests=requests_of(fleet, serving, tags),
        rounds=_rounds(lines, np.flatnonzero(drafts & (lines["round"] >= 0)), verified) if speculates else None,
        verified=_verified(lines[verified]) if speculates else None,
        draft_steps=_steps(fleet, lines[leads & drafts]),
        other_steps=_steps(fleet, lines[leads & ~drafts]),
        drafters=len(np.unique(lines["station"][drafts])),
        rows=rows,
    )


def rows_of(fleet: Fleet, lines: Array) -> Table:
    """Return the rows of the event table."""
    named = {"station": station_names(fleet), "event": EVENTS.to_pylist(), "kind": KINDS}

    def column(name: str) -> Column:
        if name in named:
            return words_of(lines[name], named[name])
        if name in (lines.dtype.names or ()):
            return np.asarray(lines[name].astype(SCHEMA.field(name).type.to_pandas_dtype()))
        value = "simulated" if name == "origin" else Row._field_defaults[name]
        if isinstance(value, str):
            return Words(np.zeros(len(lines), dtype=np.int32), [value])
        return np.full(len(lines), value)

    return Table(len(lines), SCHEMA.names, column)


def _commits(rows: Table, lines: Array, committing: Bools) -> Table:
    accepted, left = lines["accepted"][committing], lines["left"][committing]
    return rows.where(committing).plus(committed=np.minimum(accepted + 1, left), from_draft=np.minimum(accepted, left))


def _rounds(lines: Array, drafted: Array, verified: Array) -> Table:
    """Return the rounds; drafts on the target's device are not asked for, and have no way."""
    drafts, unknown = lines[drafted], np.full(len(drafted), np.nan)
    verified_s, verify_s, accepted = (np.full(len(drafted), np.nan) for _ in range(3))
    ends = lines[verified]
    of = ends["round"]
    verified_s[of], verify_s[of], accepted[of] = ends["time_s"], ends["duration_s"], ends["accepted"]
    rounds = Table.of(
        tag=drafts["tag"].astype(np.int64),
        request=drafts["request"].astype(np.int64),
        epoch=drafts["epoch"].astype(np.int64),
        drafted_s=drafts["time_s"],
        service_s=drafts["duration_s"],
        draft_tokens=drafts["tokens"],
        asked_s=unknown,
        begun_s=drafts["begun_s"],
        idle_gap_s=drafts["gap_s"],
        arrived_s=unknown,
        verified_s=verified_s,
        verify_s=verify_s,
        acceptance_length=accepted,
        returned_s=unknown,
    )
    return with_differences(rounds)


def _verified(ends: Array) -> Table:
    return Table.of(
        tag=ends["tag"].astype(np.int64),
        verified_s=ends["time_s"],
        draft_tokens=ends["tokens"],
        acceptance_length=ends["accepted"],
    )


def _steps(fleet: Fleet, ends: Array) -> Table:
    return Table.of(
        station=words_of(ends["station"], station_names(fleet)),
        kind=words_of(ends["kind"], KINDS),
        begun_s=ends["begun_s"],
        ended_s=ends["time_s"],
    )
