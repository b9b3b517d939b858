"""The tables of metrics, from the step log of the compiled loop."""

from collections.abc import Sequence

import numpy as np

from specfleet.fleet.records.columns import Integers, Table, Words
from specfleet.fleet.records.metrics.findings import Findings, end_of
from specfleet.fleet.records.metrics.grouped import Floats
from specfleet.fleet.records.metrics.tables import with_differences
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.fast import kernel
from specfleet.sim.fast.arrays import StarArrays
from specfleet.sim.fast.events import DRAFTING, PREFILL, VERIFY
from specfleet.sim.fast.kernel import StepLog
from specfleet.sim.fast.table import KINDS, station_names


def allocate_log(rounds: int, requests: int) -> StepLog:
    """Allocate a step log for about so many rounds of so many requests."""
    steps = rounds + requests
    return StepLog(
        np.empty((kernel.DRAFT_COLUMNS[0], rounds)),
        np.empty((kernel.DRAFT_COLUMNS[1], rounds), dtype=np.int32),
        np.empty((kernel.COMMIT_COLUMNS[0], steps)),
        np.empty((kernel.COMMIT_COLUMNS[1], steps), dtype=np.int32),
        np.empty((2, requests)),
        np.empty((2, requests), dtype=np.int64),
    )


def with_double_capacity(log: StepLog) -> StepLog:
    """Return the same log with twice the capacity."""
    names = ("draft_times", "drafts", "commit_times", "commits")
    doubled = {name: np.concatenate([old, np.empty_like(old)], axis=1) for name, old in zip(names, log, strict=False)}
    return log._replace(**doubled)


def make_findings(fleet: Fleet, star: StarArrays, log: StepLog) -> Findings:
    """Return the tables of a finished simulation."""
    clock = star.clocks[0]
    counts = [clock[name] for name in ("drafts", "drafts", "commits", "commits", "prefills", "prefills")]
    log = StepLog(*(part[:, :count] for part, count in zip(log, counts, strict=True)))
    drafters, targets, tags = (
        np.repeat(star.streams[name], np.diff(star.streams["last"], prepend=-1))
        for name in ("drafter", "target", "tag")
    )  # of each request
    commits, requests = _commits(star, tags, log), requests_of(fleet, star, tags)
    return Findings(
        fleet=fleet,
        commits=commits,
        requests=requests,
        end_s=end_of(requests, commits),
        rounds=_rounds(tags, log),
        verified=_verified(log),
        draft_steps=_draft_steps(fleet, drafters, log),
        other_steps=steps_table(
            fleet,
            targets[log.commits[kernel.OF_REQUEST]],
            log.commits[kernel.OF_KIND],
            log.commit_times[kernel.BEGUN_S],
            log.commit_times[kernel.ENDED_S],
        ),
    )


def _commits(star: StarArrays, tags: Integers, log: StepLog) -> Table:
    request = log.commits[kernel.OF_REQUEST]
    left = star.requests["goal"][request] - log.commits[kernel.AT_BASE]
    return Table.of(
        time_s=log.commit_times[kernel.ENDED_S],
        tag=tags[request],
        request=star.requests["number"][request],
        duration_s=log.commit_times[kernel.LASTED_S],
        committed=np.minimum(log.commits[kernel.WAS_ACCEPTED] + 1, left),
    )


def requests_of(fleet: Fleet, star: StarArrays, tags: Integers) -> Table:
    """Return the requests of a finished simulation; `tags`: the stream of each."""
    requests = star.requests
    last = np.zeros(len(requests), dtype=bool)
    last[star.streams["last"]] = fleet.streams > 0
    return Table.of(
        tag=tags, request=requests["number"], joined_s=requests["joined_s"], first_s=requests["first_s"],
        last_s=requests["last_s"], prompt_tokens=requests["prompt"].astype(np.float64),
        tokens=(requests["goal"] - requests["prompt"]).astype(np.float64), finished=np.ones(len(requests), dtype=bool),
        refused=np.zeros(len(requests), dtype=bool), last=last,
    ).where(np.lexsort((requests["number"], tags)))  # fmt: skip


def _rounds(tags: Integers, log: StepLog) -> Table:
    times, numbers, ends = log.draft_times, log.drafts, log.commit_times
    following = numbers[kernel.NEXT_DRAFT]
    rounds = Table.of(
        tag=tags[numbers[kernel.OF_REQUEST]], drafted_s=times[kernel.ENDED_S], service_s=times[kernel.LASTED_S],
        draft_tokens=numbers[kernel.OF_TOKENS], asked_s=times[kernel.REQUESTED_S], begun_s=times[kernel.GROUP_BEGUN_S],
        idle_gap_s=times[kernel.GAP_S], arrived_s=times[kernel.ARRIVED_S],
        verified_s=ends[kernel.ENDED_S][numbers[kernel.VERIFIED]],
        verify_s=ends[kernel.LASTED_S][numbers[kernel.VERIFIED]],
        returned_s=np.where(following >= 0, times[kernel.REQUESTED_S][following], np.nan),
    )  # fmt: skip
    return with_differences(rounds)


def _verified(log: StepLog) -> Table:
    verified = np.flatnonzero(log.commits[kernel.OF_KIND] == VERIFY)
    return Table.of(
        verified_s=log.commit_times[kernel.ENDED_S][verified],
        draft_tokens=log.commits[kernel.OF_TOKENS][verified],
        acceptance_length=log.commits[kernel.WAS_ACCEPTED][verified],
    )


def _draft_steps(fleet: Fleet, drafters: Integers, log: StepLog) -> Table:
    """Return the steps of drafters: drafts and prefills, in the order of their ends."""
    of, places = log.prefilled
    requests = np.insert(log.drafts[kernel.OF_REQUEST], places, of)
    kinds = np.insert(np.full(log.drafts.shape[1], DRAFTING), places, PREFILL)
    begun_s, ended_s = (
        np.insert(log.draft_times[row], places, log.prefills[row]) for row in (kernel.BEGUN_S, kernel.ENDED_S)
    )
    return steps_table(fleet, drafters[requests], kinds, begun_s, ended_s)


def steps_table(fleet: Fleet, stations: Integers, kinds: Integers, begun_s: Floats, ended_s: Floats) -> Table:
    """Return the table of steps, in the order of their ends; stations and kinds are numbers."""
    return Table.of(
        station=words_of(stations, station_names(fleet)), kind=words_of(kinds, KINDS), begun_s=begun_s, ended_s=ended_s
    )


def words_of(numbers: Integers, names: Sequence[str]) -> Words:
    """Return a column of words from their places among `names`."""
    alphabetical = sorted(names)
    place = {word: number for number, word in enumerate(alphabetical)}
    return Words(np.array([place[name] for name in names], dtype=np.int32)[numbers], alphabetical)
