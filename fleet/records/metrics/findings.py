"""The input of metrics: a few tables, from a run's rows, or from the sums of a long simulation."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from specfleet.fleet.records.columns import Table
from specfleet.fleet.records.metrics import tables
from specfleet.fleet.records.metrics.grouped import Floats, Groups, at, find
from specfleet.fleet.records.power import DeviceCurve
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolved import Fleet


class Findings(msgspec.Struct, frozen=True):
    """Tables of a run, in order of time.

    - `commits`, `rounds`, `verified`: see `tables.py`; the last two are None without a drafter.
    - `requests`: see `requests_table`.
    - `steps`: finished steps, or sums of those by kind; see `steps_of`.
    - `draft_steps`: the drafts, and all steps of stations that only draft; `other_steps`: the rest.
    - `end_s`: end of the measurement window; see `window_of`.
    - `devices`: measured counters of devices.
    - `rows`: the run's rows.
    - `inside`: changes of the number of requests in the system; None if they follow from `rows`.
    - `prompts`: as they begin, with the tokens that a prefix cache has; None if they follow from `rows`.
    - `opened_s`: when each stream opened; empty if `rows` say it.

    Of a long simulation without records, rows of tables are stretches of time, columns `Series`, and `rows` only its
    beginning.
    """

    fleet: Fleet
    commits: Table
    requests: Table
    steps: Table
    draft_steps: Table
    other_steps: Table
    end_s: float
    rows: Table
    rounds: Table | None = None
    verified: Table | None = None
    devices: tuple[DeviceCurve, ...] = ()
    inside: Table | None = None
    prompts: Table | None = None
    opened_s: Sequence[float] | Floats = ()


def findings_of(run: Run) -> Findings:
    """Return the findings of a run from its rows."""
    findings = msgspec.structs.replace(findings_of_rows(run.header.fleet, run.columns()), devices=run.header.devices)
    return findings if run.header.steps else msgspec.structs.replace(findings, rounds=None, verified=None)


def findings_of_rows(fleet: Fleet, rows: Table) -> Findings:
    """Return the findings of a fleet from its rows."""
    rows = tables.numbered_on(rows)
    commits, steps = tables.commits_of(rows), steps_of(rows)
    requests = requests_table(fleet, rows, commits)
    drafting, known = tables.at_drafter(steps) | steps.kind.among("draft"), ~np.isnan(steps.begun_s)
    findings = Findings(
        fleet=fleet, commits=commits, requests=requests, end_s=end_of(fleet, requests, commits), steps=steps,
        draft_steps=steps.where(drafting & known), other_steps=steps.where(~drafting & known), rows=rows,
    )  # fmt: skip
    if not fleet.drafters.count:
        return findings
    verified = tables.verifications_of(rows)
    # A draft that goes on ends with its verification.
    rounds = tables.rounds_of(rows) if fleet.in_turn else verified.plus(drafted_s=verified.verified_s)
    return msgspec.structs.replace(findings, rounds=rounds, verified=verified)


def end_of(fleet: Fleet, requests: Table, commits: Table) -> float:
    """Return when the first stream has finished its last request, or else when the last token was committed.

    Where arrivals end the measurement, return when the last request or conversation arrived.
    """
    if fleet.measure.ends == "arrivals":
        return float(requests.joined_s[np.unique(requests.tag, return_index=True)[1]].max())  # by stream and number
    ended_s = requests.last_s[requests.last]
    return float(min(ended_s if len(ended_s) else commits.time_s[-1:], default=math.nan))  # rows are in order of time


def requests_table(fleet: Fleet, rows: Table, commits: Table) -> Table:
    """Return one row for each request with committed tokens, by stream and number.

    - `joined_s`, `first_s`, `last_s` (seconds): when it arrived, and when its first and its last token left its target.
    - `prompt_tokens`, `tokens`: tokens of its prompt, and committed tokens.
    - `finished`, `refused`: whether it is complete, and whether a drafter refused it.
    - `last`: whether it is the last of its stream, to which requests are dealt in turn; none if each is its own stream.
    """
    requests, left_s = tables.requests_of(commits), tables.left_s_of(fleet, rows, commits)
    named = commits.tag[requests.first], commits.request[requests.first]
    joins, refusals = rows.of_event("join"), rows.of_event("refusal")
    joined, tokens = find(named, (joins.tag, joins.request)), requests.sums(commits.committed)
    finished = tokens == at(joins.goal - joins.tokens, joined)
    return Table.of(
        tag=named[0], request=named[1], joined_s=at(joins.time_s, joined), first_s=requests.smallest(left_s),
        last_s=requests.largest(left_s), prompt_tokens=at(joins.tokens, joined), tokens=tokens, finished=finished,
        refused=find(named, (refusals.tag, refusals.request)) >= 0,
        last=np.logical_and(fleet.streams > 0, named[1] + fleet.streams >= fleet.workload.requests),
    )  # fmt: skip


def steps_of(rows: Table) -> Table:
    """Return one row for each finished step, in order of their ends: station, kind, begun_s (NaN if unknown), ended_s
    and duration_s, in seconds."""
    begun, done = rows.of_event("start"), rows.of_event("done")
    ended = done.where(Groups(done.station, done.step).is_first)
    place = find((ended.station.codes, ended.step), (begun.station.codes, begun.step))
    named = ended.named(station="station", kind="kind", ended_s="time_s", duration_s="duration_s")
    return named.plus(begun_s=at(begun.time_s, place))
