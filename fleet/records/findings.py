"""What the metrics of a run are computed from: a few tables, made of its rows, or by the compiled loop without any.

The loop is held to the tables that its rows would give, value for value (`tests/sim/test_facts.py`).
"""

import msgspec
import numpy as np

from fleet.records.columns import Bools, Table
from fleet.records.grouped import Groups, at, find
from fleet.records.power import EnergyCurve
from fleet.records.run import Run
from fleet.records.tables import at_drafter, commits_of, requests_of, rounds_table, verifications_of
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of


class Findings(msgspec.Struct, frozen=True):
    """Tables of a run, in the order in which things happened.

    `commits`, `rounds`, `verified`: of `tables.py`; the last two are None without a drafter. `requests`: as
    `requests_table` tells. `drafts`, `other_draft_steps`: the drafts and other steps of `drafters` stations that draft,
    None without one; `steps`: those of all stations, None where no profile knows their powers; all as `steps_of` tells.
    `energy`: what counters of
    devices measured. `rows`: the run's rows; None where there are none, and nothing that needs them (`needs_rows`).
    """

    fleet: Fleet
    commits: Table
    requests: Table
    rounds: Table | None = None
    verified: Table | None = None
    drafts: Table | None = None
    other_draft_steps: Table | None = None
    drafters: int = 0
    steps: Table | None = None
    energy: tuple[EnergyCurve, ...] = ()
    rows: Table | None = None


def findings_of(run: Run) -> Findings:
    """Return the findings of a run, from its rows."""
    rows, fleet = run.columns(), run.header.fleet
    commits = commits_of(rows)
    known = Findings(fleet, commits, requests_table(fleet, rows, commits), energy=run.header.energy, rows=rows)
    if fleet.power is not None:
        known = msgspec.structs.replace(known, steps=steps_of(rows))
    if not fleet.drafters.count:
        return known
    rounds, drafts = rounds_table(fleet, rows), rows.kind.among("draft")
    others = at_drafter(rows) & ~drafts
    if not fleet.in_turn:  # a draft that goes on has no end but its verification
        rounds = rounds.plus(drafted_s=rounds.verified_s)
    return msgspec.structs.replace(
        known,
        rounds=rounds,
        verified=verifications_of(rows),
        drafts=steps_of(rows.where(drafts)),
        other_draft_steps=steps_of(rows.where(others)),
        drafters=len(rows.station[drafts | others].present()),
    )


def needs_rows(fleet: Fleet) -> bool:
    """Whether metrics of this fleet need its rows: what waited where requests come by themselves, caches, batches."""
    return (
        fleet.workload.arrivals is not None
        or fleet.memory is not None
        or fleet.batch is not None
        or fleet.verifiers.patience.patience_s > 0
        or not fleet.in_turn
    )


def requests_table(fleet: Fleet, rows: Table, commits: Table) -> Table:
    """Return one row for each request that committed anything, by stream and number.

    Times in seconds: joined_s, first_s and last_s of its commits. `tokens` that were committed, whether it is
    `finished`, and was `refused` a drafter, and whether it is the `last` of its stream.
    """
    requests = requests_of(commits)
    named = commits.tag[requests.first], commits.request[requests.first]
    joins, refusals = (rows.where(rows.event.among(event)) for event in ("join", "refusal"))
    joined, tokens = find(named, (joins.tag, joins.request)), requests.sums(commits.committed)
    return Table.of(
        tag=named[0],
        request=named[1],
        joined_s=at(joins.time_s, joined),
        first_s=requests.smallest(commits.time_s),
        last_s=requests.largest(commits.time_s),
        tokens=tokens,
        finished=(tokens == at(joins.goal - joins.tokens, joined)) | requests.largest(commits.flag),
        refused=find(named, (refusals.tag, refusals.request)) >= 0,
        last=_last_of_streams(fleet, named),
    )


def _last_of_streams(fleet: Fleet, named: tuple[np.ndarray, np.ndarray]) -> Bools:
    last: Bools = np.zeros(len(named[0]), dtype=bool)
    if fleet.streams:
        ends = np.array([(tag, of_stream[-1].number) for tag, of_stream in streams_of(fleet).items()])
        last = find(named, (ends[:, 0], ends[:, 1])) >= 0
    return last


def steps_of(rows: Table) -> Table:
    """Return one row for each finished step, as they ended: station, kind, begun_s and ended_s in seconds."""
    begun, done = (rows.where(rows.event.among(event)) for event in ("start", "done"))
    ended = done.where(np.sort(Groups(done.station, done.step).first))
    steps = Groups(begun.station, begun.step)
    named = begun.station.codes[steps.first], begun.step[steps.first]
    place = find((ended.station.codes, ended.step), named)
    began = np.where(place >= 0, steps.first[place], -1)
    table = Table.of(station=ended.station, kind=ended.kind, begun_s=at(begun.time_s, began), ended_s=ended.time_s)
    return table.where(began >= 0)
