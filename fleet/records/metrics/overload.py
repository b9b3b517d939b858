"""Whether requests arrive faster than the fleet can serve them: a verdict from a run's records.

In an open loop an overloaded station has a queue that grows as long as the run: waits and latencies measure the run's
length, and no interval holds. The rule is the utilisation law, rho = (streams a second) x (the station's time for a
stream). That time is the mean work of all streams, by kind of step, at the station's speed while it was saturated,
that is, while more work waited than its step could take. The speed therefore includes pauses between steps, full
batches and turns on a shared device, and excludes steps with spare places. Work of a prefill server counts by tokens,
and its step includes the draft that follows. A station is overloaded if rho exceeds 1 significantly: the false alarm
rate at rho = 1 is one run in a thousand (one-sided, over all stations; the variance is that of streams' work and of
single steps).

No verdict is possible for a station that takes all waiting work (at a barrier, or a batch without a limit), a drafter
with rate limits, or drafting ahead. The capacity of drafters at a barrier excludes their waits for it.
"""

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from scipy.special import stdtrit

from specfleet.fleet.policies.group import AllWaiting, One
from specfleet.fleet.policies.order import rate_limits
from specfleet.fleet.records.columns import Bools, Integers, Series, Table
from specfleet.fleet.records.metrics.findings import Findings
from specfleet.fleet.records.metrics.grouped import Floats, Groups, at, find
from specfleet.fleet.records.metrics.tables import DRAFTING, received_of, requests_of
from specfleet.fleet.scenario.arrivals import Gamma, Poisson
from specfleet.fleet.scenario.names import DRAFTER, PREFILL, ROUTER, TARGET
from specfleet.fleet.scenario.resolved import Fleet

FALSE_ALARM = 0.001  # false alarm rate of the verdict at rho = 1
LINK = "link of the prefill servers"
MIN_STEPS = 30  # saturated steps of the kind that takes most of a station's time


class Overload(msgspec.Struct, frozen=True):
    """Offered load beyond capacity.

    Keys:
        offered_tokens_per_s (tokens/s): Tokens a second that the arrivals request.
        carried_tokens_per_s (tokens/s): Maximum tokens a second of the fleet, by its slowest station.
        load (factor): Offered over carried: rho of that station.
        bottleneck: The station with that rho, in words.
    """

    offered_tokens_per_s: float
    carried_tokens_per_s: float
    load: float
    bottleneck: str

    def line(self) -> str:
        """Return the verdict in one line."""
        return (
            f"overload: offers {self.offered_tokens_per_s:.4g} tokens/s, carries {self.carried_tokens_per_s:.4g}; "
            f"{self.bottleneck} the bottleneck"
        )


class _Demand(msgspec.Struct, frozen=True):
    """A station's time for a stream in seconds, estimated from `streams` streams, and its standard error."""

    station: str
    mean_s: float
    error_s: float
    streams: int

    def beyond(self, per_s: float, level: float) -> bool:
        """Return whether that many streams a second exceed the station's capacity, at that error probability."""
        quantile = stdtrit(max(self.streams - 1, 1), 1 - level)
        return bool(per_s * (self.mean_s - quantile * self.error_s) > 1)


def overload_of(findings: Findings) -> Overload | None:
    """Return the verdict if requests arrive faster than they can be served; else None."""
    fleet, rows = findings.fleet, findings.rows
    if fleet.workload.arrivals is None or not fleet.in_turn:
        return None
    joins = rows.where(rows.event.among("join"))
    opened = Groups(joins.tag).first
    per_s, streams = streams_per_s(fleet, joins.time_s[opened]), len(opened)
    began = np.isin(joins.tag[opened], rows.tag[rows.event.among("start")])  # all, unless `rows` end before the run
    demands = list(_demands(fleet, rows, joins.tag[opened][began])) if np.isfinite(per_s) else []
    beyond = [demand for demand in demands if demand.beyond(per_s, FALSE_ALARM / len(demands))]
    if not beyond:
        return None
    worst = max(beyond, key=lambda demand: demand.mean_s)
    tokens = findings.commits.committed
    committed = tokens.sums if isinstance(tokens, Series) else tokens
    offered, load = per_s * float(committed.sum()) / (len(findings.opened_s) or streams), per_s * worst.mean_s
    return Overload(offered, offered / load, load, _in_words(worst.station, [demand.station for demand in beyond]))


def streams_per_s(fleet: Fleet, opened_s: Floats) -> float:
    """Streams opened in a second, by the scenario or its trace; NaN if all open at once."""
    if isinstance(fleet.workload.arrivals, Poisson | Gamma):
        return fleet.workload.arrivals.per_s
    span_s = float(opened_s.max() - opened_s.min())
    return (len(opened_s) - 1) / span_s if span_s > 0 else math.nan


def _demands(fleet: Fleet, rows: Table, streams: Integers) -> Iterator[_Demand]:
    """Yield the demand of each station that was saturated at times."""
    rows = rows.where((_sizes(rows) > 0) | ~rows.kind.among(*DRAFTING))
    all_jobs, all_steps = _jobs(rows), _steps(rows)
    for station in all_steps.station.present():
        steps, jobs = (table.where(table.station.among(station)) for table in (all_steps, all_jobs))
        waits = fleet.verifiers.late == "wait" or (_is_drafter(station) and rate_limits(fleet.drafters.order))
        if station == ROUTER or waits or len(steps) < MIN_STEPS or not len(jobs):
            continue
        at_station = rows.where(rows.station.among(station))
        if fleet.verifiers.aligned is not None:
            jobs = jobs.where(jobs.after.among("join"))  # other sessions wait in the pool
        saturated = _full(fleet, station, at_station, steps) & (_waiting(jobs, steps.begun_s) > 0)
        saturated &= ~np.isnan(steps.cycle_s)
        singly, of_steps = _singly(fleet, station), steps.plus(saturated=saturated)
        mixed = not (_is_drafter(station) or singly)
        demand = _demand(station, at_station, of_steps, streams, singly=singly, mixed=mixed)
        if demand is not None:
            yield demand
    if prefill := fleet.verifiers.prefill:
        came = received_of(rows)
        sent_s = came.payload_bytes * prefill.link.s_per_byte / prefill.count
        sent_s = Groups(np.append(streams, came.tag)).sums(np.append(0.0 * streams, sent_s))
        yield _Demand(LINK, float(sent_s.mean()), float(sent_s.std() / math.sqrt(len(sent_s))), len(sent_s))


def _is_drafter(station: str) -> bool:
    return station.startswith(DRAFTER)


def _sizes(rows: Table) -> Integers:
    """Return each row's part of its step's work: its tokens at a prefill server, without those of drafts, else 1."""
    at_prefill, drafts = rows.station.having(lambda name: name.startswith(PREFILL)), rows.kind.among(*DRAFTING)
    return np.where(at_prefill, rows.tokens * ~drafts, 1)


def _singly(fleet: Fleet, station: str) -> bool:
    """Return whether steps of a station do not grow with the number of waiting sessions."""
    if _is_drafter(station):
        return isinstance(fleet.drafters.group, One)
    return fleet.verifiers.aligned is not None or fleet.verifiers.batching.max_num_seqs == 1


def _full(fleet: Fleet, station: str, rows: Table, steps: Table) -> Bools:
    """Return whether each step of a station is full: one session, the maximum of its group, or a whole pool."""
    if fleet.verifiers.aligned is not None:
        return _pool_is_full(fleet, rows, steps)
    if _is_drafter(station) and isinstance(fleet.drafters.group, AllWaiting):  # steps before a draft have its group
        drafts = np.flatnonzero(steps.kind.among("draft"))
        following = np.searchsorted(drafts, np.arange(len(steps)))
        members = at(steps.members[drafts], np.where(following < len(drafts), following, -1))
        return np.equal(members, fleet.drafters.group.most)
    if not _is_drafter(station) and not station.startswith(PREFILL):  # where a prompt waits only if no more fit
        members = steps.members
        return np.asarray(members == fleet.verifiers.batching.max_num_seqs)
    return np.ones(len(steps), dtype=bool)


def _jobs(rows: Table) -> Table:
    """Return the waits: station, asked_s and begun_s of each step of a stream, and `after`, the step before."""
    inputs = rows.where(~rows.event.among("view"))
    before = Groups(inputs.station, inputs.tag).before()
    begun = np.flatnonzero(inputs.event.among("start") & (before >= 0))
    arrivals = before[begun]
    return Table.of(
        station=inputs.station[begun],
        asked_s=inputs.time_s[arrivals],
        begun_s=inputs.time_s[begun],
        after=inputs.event[arrivals],
    )


def _steps(rows: Table) -> Table:
    """Return each station's steps in order: kind, begun_s, members, duration_s (NaN if unfinished), and cycle_s until
    the next begins (NaN for the last)."""
    begun, done = (rows.where(rows.event.among(event)) for event in ("start", "done"))
    steps = Groups(begun.station, begun.step)
    first = begun.where(steps.first)
    ended = find((first.station.codes, first.step), (done.station.codes, done.step))
    last = first.station.codes[1:] != first.station.codes[:-1]
    cycle_s = np.full(len(first), np.nan)
    cycle_s[:-1] = np.where(last, np.nan, np.diff(first.time_s))
    return Table.of(
        station=first.station, kind=first.kind, begun_s=first.time_s, members=steps.sums(_sizes(begun)),
        duration_s=at(done.duration_s, ended), cycle_s=cycle_s,
    )  # fmt: skip


def _waiting(jobs: Table, at_s: Floats) -> Integers:
    """Return how many jobs remain waiting, since before, as the steps that begin at these times begin."""
    jobs = jobs.where(jobs.begun_s > jobs.asked_s)
    arrived = np.searchsorted(np.sort(jobs.asked_s), at_s, side="left")
    begun = np.searchsorted(np.sort(jobs.begun_s), at_s, side="right")
    return arrived - begun


def _pool_is_full(fleet: Fleet, rows: Table, steps: Table) -> Bools:
    """Return whether the pool of aligned rows is full as each step begins; of a batch that ends whole, as it began."""
    rule = fleet.verifiers.aligned
    assert rule is not None
    pool = rule.pool(fleet.verifiers.batching.max_num_seqs)
    if rule.together:
        prefills = np.flatnonzero(steps.kind.among("prefill"))
        members = at(steps.members[prefills], np.searchsorted(prefills, np.arange(len(steps)), side="right") - 1)
        return np.equal(members, pool)
    served = rows.where(rows.event.among("start", "done"))
    requests = requests_of(served)
    taken = np.searchsorted(np.sort(requests.smallest(served.time_s)), steps.begun_s, side="right")
    left = np.searchsorted(np.sort(requests.largest(served.time_s)), steps.begun_s, side="right")
    return np.asarray(taken - left >= pool)


def _demand(station: str, rows: Table, steps: Table, streams: Integers, singly: bool, mixed: bool) -> _Demand | None:
    """Return a station's demand, from its rows and steps; None if it was saturated too rarely.

    Kinds of steps that were never saturated count with their plain times if steps do not grow (`singly`), else not at
    all: larger steps would have been cheaper per stream. Steps with parts of several kinds (`mixed`) count as one kind.
    """
    kinds = {kind: steps.where(steps.kind.among(kind)) for kind in steps.kind.present()}
    if mixed:
        kinds = {"": steps}
    main = max(kinds.values(), key=lambda of_kind: float(np.nansum(of_kind.duration_s)))
    if main.saturated.sum() < MIN_STEPS:
        return None
    begun = rows.where(rows.event.among("start"))
    of_streams = Groups(begun.tag)
    of_stream_s, variance = np.zeros(len(of_streams)), 0.0
    share = len(of_streams) / len(streams)  # streams of this station, resolved by how they are dealt
    for kind, of_kind in kinds.items():
        saturated = of_kind.where(of_kind.saturated)
        enough = len(saturated) > 1
        if not enough and not singly:
            continue
        members = (saturated if enough else of_kind).members
        times_s = saturated.cycle_s if enough else np.nan_to_num(of_kind.duration_s)
        each_s = times_s.sum() / members.sum()
        counts = of_streams.sums(_sizes(begun) if mixed else begun.kind.among(kind))
        of_stream_s += counts * each_s
        spread_s = np.sqrt(((times_s - each_s * members) ** 2).sum()) / members.sum()
        variance += float(counts.mean() * spread_s) ** 2
    if len(of_streams) > 1:
        variance += float(of_stream_s.var(ddof=1)) / len(of_streams)
    return _Demand(station, share * float(of_stream_s.mean()), share * float(np.sqrt(variance)), len(of_streams))


def _in_words(worst: str, beyond: list[str]) -> str:
    """Return the bottleneck with its verb: one station, or all of its kind if several are overloaded."""
    kind, _, number = worst.partition(".")
    words = {DRAFTER: "drafter", TARGET: "target", PREFILL: "prefill server"}.get(kind, kind)
    if sum(name.partition(".")[0] == kind for name in beyond) > 1:
        return f"the {words}s are"
    return f"{words} {number} is" if number else f"the {words} is"
