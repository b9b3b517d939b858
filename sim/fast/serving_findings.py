"""The event table and the tables of metrics, from the step log of the compiled loop of serving targets."""

from functools import cache, partial
from itertools import repeat

import numpy as np

from specfleet.fleet.records.columns import Column, Table, Words, words_of
from specfleet.fleet.records.metrics.findings import Findings, end_of
from specfleet.fleet.records.metrics.tables import COMMITTING, at_drafter, with_differences
from specfleet.fleet.records.schema import SCHEMA, Row
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.fast.events import DONE, DRAFT, DRAFTING, REQUEST, START, Array
from specfleet.sim.fast.logged import FURTHER, REALS, WHOLES
from specfleet.sim.fast.serving_arrays import ServingArrays
from specfleet.sim.fast.serving_state import StepLog
from specfleet.sim.fast.table import KINDS, columns_of, identities_of, names_of, station_names


def findings_of_log(fleet: Fleet, serving: ServingArrays, log: StepLog) -> Findings:
    """Return the tables of a finished simulation. Columns of `rows` are made when a metric uses them."""
    ends = log.blocks[log.blocks["event"] == DONE]
    ended = rows_of(fleet, serving, log, ends, FURTHER)
    kinds, speculates, targets = log.parts["kind"][ends["first"]], fleet.drafters.count > 0, fleet.verifiers.count
    drafts = (kinds == DRAFTING) | (ends["station"] >= targets)
    verified, committing = ended.where(ended.kind.among("verify")), ended.kind.among(*COMMITTING) & ~at_drafter(ended)
    accepted, left = ended.accepted[committing], ended.left[committing]
    commits = Table(len(ended), SCHEMA.names, lambda name: getattr(ended, name)).where(committing)
    commits, requests = commits.plus(committed=np.minimum(accepted + 1, left)), _requests(serving)
    return Findings(
        fleet=fleet,
        commits=commits,
        requests=requests,
        end_s=end_of(fleet, requests, commits),
        rounds=_rounds(fleet, serving, log, ended, verified) if speculates else None,
        verified=_verified(verified) if speculates else None,
        draft_steps=_steps(fleet, ends[drafts], kinds[drafts]),
        other_steps=_steps(fleet, ends[~drafts], kinds[~drafts]),
        rows=rows_of(fleet, serving, log, log.blocks),
    )


def rows_of(fleet: Fleet, serving: ServingArrays, log: StepLog, blocks: Array, further: tuple[str, ...] = ()) -> Table:
    """Return the rows of some blocks of a log as a table, with further columns."""
    columns, named = cache(partial(columns_of, serving, log, blocks, bool(further))), names_of(fleet)
    count = int(blocks["parts"].sum())

    def column(name: str) -> Column:
        if name in named:
            return words_of(columns()[name], named[name])
        if name in (*REALS, *WHOLES):
            numbers: Column = columns()[name]
            return numbers
        value = "simulated" if name == "origin" else Row._field_defaults[name]
        if isinstance(value, str):
            return Words(np.zeros(count, dtype=np.int32), [value])
        if name == "identity" and serving.sharing is not None:
            lists = map(tuple, identities_of(serving, columns()).to_pylist())
            return np.fromiter(lists, dtype=object, count=count)
        if isinstance(value, tuple):
            return np.fromiter(repeat((), count), dtype=object)
        return np.full(count, value)

    return Table(count, (*SCHEMA.names, *further), column)


def _rounds(fleet: Fleet, serving: ServingArrays, log: StepLog, ended: Table, verified: Table) -> Table:
    """Return the rounds; drafts on the target's device are not asked for, and have no way."""
    drafts, count = ended.where(ended.kind.among("draft") & (ended.round >= 0)), int(serving.clocks["rounds"][0])
    times = _at_drafters(fleet, serving, log) if fleet.drafters.stations else {}

    def of_rounds(name: str) -> Array:
        return times[name][drafts.round] if times else np.full(len(drafts), np.nan)

    def verification(name: str) -> Array:
        return _by_round(count, verified.round, getattr(verified, name))[drafts.round]

    rounds = Table.of(
        tag=drafts.tag, request=drafts.request, epoch=drafts.epoch, drafted_s=drafts.time_s,
        service_s=drafts.duration_s, draft_tokens=drafts.tokens, asked_s=of_rounds("asked_s"),
        begun_s=of_rounds("begun_s") if times else drafts.begun_s, idle_gap_s=drafts.gap_s,
        arrived_s=of_rounds("arrived_s"), verified_s=verification("time_s"), verify_s=verification("duration_s"),
        acceptance_length=verification("accepted"), returned_s=of_rounds("returned_s"),
    )  # fmt: skip
    return with_differences(rounds)


def _at_drafters(fleet: Fleet, serving: ServingArrays, log: StepLog) -> dict[str, Array]:
    """Return the times of rounds, by their number: those of messages, and the start of the first step for each."""
    blocks, parts, count = log.blocks, log.parts, int(serving.clocks["rounds"][0])
    asking, coming = (blocks[blocks["event"] == event] for event in (REQUEST, DRAFT))  # requests number the rounds
    drafting = (blocks["event"] == START) & (blocks["station"] >= fleet.verifiers.count)
    begun = columns_of(serving, log, blocks[drafting], True)
    of, epoch = (parts[name][asking["first"]] for name in ("request", "epoch"))
    order, returned_s = np.argsort(of, kind="stable"), np.full(count, np.nan)
    follows = (of[order[1:]] == of[order[:-1]]) & (epoch[order[1:]] == epoch[order[:-1]] + 1)
    returned_s[order[:-1][follows]] = asking["time_s"][order[1:][follows]]
    return {
        "asked_s": asking["time_s"],
        "begun_s": _by_round(count, begun["round"], begun["time_s"]),
        "arrived_s": _by_round(count, parts["round"][coming["first"]], coming["time_s"]),
        "returned_s": returned_s,
    }


def _by_round(count: int, rounds: Array, values: Array) -> Array:
    """Return the first value of each round; NaN for rounds without one."""
    first = np.full(count, np.nan)
    first[rounds[::-1]] = values[::-1]
    return first


def _requests(serving: ServingArrays) -> Table:
    texts, times, number = serving.texts, serving.slots.times, np.arange(len(serving.texts))
    tags, streams = serving.tags(number), serving.limits.streams
    return Table.of(
        tag=tags, request=number, **{name: times[name] for name in times.dtype.names or ()},
        prompt_tokens=texts["prompt"].astype(np.float64), tokens=(texts["goal"] - texts["prompt"]).astype(np.float64),
        finished=np.ones(len(texts), dtype=bool), refused=np.zeros(len(texts), dtype=bool),
        last=np.logical_and(streams > 0, number + streams >= len(texts)),
    ).where(np.lexsort((number, tags)))  # fmt: skip


def _verified(verified: Table) -> Table:
    return Table.of(
        tag=verified.tag, verified_s=verified.time_s, draft_tokens=verified.tokens, acceptance_length=verified.accepted
    )


def _steps(fleet: Fleet, ends: Array, kinds: Array) -> Table:
    """Return steps in the order of their ends; a step has the kind of its first part."""
    return Table.of(
        station=words_of(ends["station"], station_names(fleet)), kind=words_of(kinds, KINDS),
        begun_s=ends["begun_s"], ended_s=ends["time_s"],
    )  # fmt: skip
