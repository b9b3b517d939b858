"""Tables from records: commits, rounds, verifications and cache contents, the same for both worlds.

Metrics are estimates from these tables. Times are in seconds since the run began, lengths in tokens.
"""

import numpy as np

from specfleet.fleet.records.columns import Bools, Table, Words
from specfleet.fleet.records.metrics.grouped import Floats, Groups, at, find
from specfleet.fleet.scenario.names import DRAFTER, PREFILL, ROUTER
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.session import INCARNATION

DRAFTING = ("draft", "draft_prefill")  # steps of a drafter on a target's device
COMMITTING = ("prefill", "verify", "decode")  # steps of a target, each of which adds tokens to its stream


def requests_of(rows: Table) -> Groups:
    """Group rows by request: stream and number."""
    return Groups(rows.tag, rows.request)


def commits_of(rows: Table) -> Table:
    """Return the finished verifier steps with `committed`, the tokens that each added to its stream.

    Tokens beyond a request's goal are not committed, nor are those of a request whose target's process died.
    """
    done = rows.where(rows.event.among("done") & rows.kind.among(*COMMITTING) & ~at_drafter(rows))
    started = done.epoch // INCARNATION
    if started.any():
        requests = requests_of(done)
        done = done.where(started == requests.largest(started)[requests.of])
    joins = rows.where(rows.event.among("join"))
    goal = at(joins.goal, find((done.tag, done.request), (joins.tag, joins.request)))
    return done.plus(committed=np.minimum(done.accepted + 1, goal - done.base))


def numbered_on(rows: Table) -> Table:
    """Return the rows with the steps of a killed station's next life numbered on; a fresh station begins at 0 again."""
    killed = rows.event.among("killed")
    if not killed.any():
        return rows
    step, beyond = rows.step.astype(np.int64), rows.step.max() + 2
    for station in np.unique(rows.station.codes[killed]):
        there = rows.station.codes == station
        step[there] += beyond * np.cumsum(killed[there])
    return rows.plus(step=step)


def left_s_of(fleet: Fleet, rows: Table, commits: Table) -> Floats:
    """Return when the tokens of each commit left its target, in seconds.

    With a drafter on the target's device they leave after the draft that follows the step; else at once. The first one,
    of a prefill server, leaves as its KV cache has arrived at the decode server.
    """
    left_s: Floats = commits.time_s
    if fleet.verifiers.drafts is not None and fleet.verifiers.aligned is None:
        drafts = rows.where(rows.event.among("done") & rows.kind.among(*DRAFTING) & ~at_drafter(rows))
        follows = find((commits.station.codes, commits.step + 1), (drafts.station.codes, drafts.step))
        left_s = np.where(follows < 0, left_s, at(drafts.time_s, follows))
    if fleet.verifiers.prefill:
        arrived = received_of(rows)
        came = find((commits.tag, commits.request), (arrived.tag, arrived.request))
        handed = commits.station.having(lambda name: name.startswith(PREFILL)) & (came >= 0)
        left_s = np.where(handed, at(arrived.time_s, came), left_s)
    return left_s


def received_of(rows: Table) -> Table:
    """Return the arrivals of KV caches at decode servers."""
    return rows.where(rows.event.among("join") & (rows.base > 0))


def rounds_of(rows: Table) -> Table:
    """Return one row for each drafted round; NaN where a later part of it is missing.

    - `drafted_s`, `verified_s`: ends of the two steps.
    - `service_s` (S), `verify_s` (t_v): their time on the device.
    - `wait_s` (T_wait): from the request's arrival until its group began, a router's delay included.
    - `asked_s`: arrival of the request at its drafter without a router's delay.
    - `idle_gap_s`: the drafter's idle time before the group.
    - `return_s` (Z): from the draft until the next request arrived.
    - `at_target_s`: from the draft's arrival until it was verified; `communication_s`: Z without that.
    - `round_s`: from a request to the next.
    - `draft_tokens`, `acceptance_length`: in tokens.

    Times are in seconds; each difference is taken on one host's clock. Of a repeated message or step the first
    counts.
    """
    drafting = at_drafter(rows) | rows.kind.among("draft")
    done, routed = rows.event.among("done"), rows.station.among(ROUTER)
    asking = rows.event.among("draft-request")
    rounds = Groups(rows.tag, rows.request, rows.epoch)

    drafted = rounds.first_of(drafting & done & rows.kind.among("draft"))
    requested = rounds.first_of(drafting & asking)
    begun = rounds.first_of(drafting & rows.event.among("start"))
    arrived = rounds.first_of(~drafting & rows.event.among("draft"))
    verified = rounds.first_of(~drafting & done & rows.kind.among("verify"))

    reached_s = at(rows.time_s, requested)
    asked_s = reached_s
    if routed.any():
        came, sent = rounds.first_of(routed & asking), rounds.first_of(routed & done)
        asked_s = reached_s - (at(rows.time_s, sent) - at(rows.time_s, came))
    returned_s = _of_next_round(rows, rounds, asked_s)

    of = rounds.of[np.sort(drafted[drafted >= 0])]  # the drafted rounds, in that order
    drafts = rows.where(drafted[of])
    table = Table.of(
        tag=drafts.tag, request=drafts.request, epoch=drafts.epoch, drafted_s=drafts.time_s,
        service_s=drafts.duration_s, draft_tokens=drafts.tokens, asked_s=asked_s[of],
        begun_s=at(rows.time_s, begun[of]), idle_gap_s=at(rows.idle_gap_s, begun[of]),
        arrived_s=at(rows.time_s, arrived[of]), verified_s=at(rows.time_s, verified[of]),
        verify_s=at(rows.duration_s, verified[of]), acceptance_length=at(rows.accepted, verified[of]),
        returned_s=returned_s[of],
    )  # fmt: skip
    return with_differences(table)


def with_differences(rounds: Table) -> Table:
    """Return rounds with the differences of times: wait_s, return_s, at_target_s, communication_s, round_s."""
    return_s, at_target_s = rounds.returned_s - rounds.drafted_s, rounds.verified_s - rounds.arrived_s
    return rounds.plus(
        wait_s=rounds.begun_s - rounds.asked_s, return_s=return_s, at_target_s=at_target_s,
        communication_s=return_s - at_target_s, round_s=rounds.returned_s - rounds.asked_s,
    )  # fmt: skip


def _of_next_round(rows: Table, rounds: Groups, values: Floats) -> Floats:
    """Return for each round the value of its request's next round; NaN if there is none."""
    tag, request, epoch = (key[rounds.first] for key in (rows.tag, rows.request, rows.epoch))
    follows = (tag[1:] == tag[:-1]) & (request[1:] == request[:-1]) & (epoch[1:] == epoch[:-1] + 1)
    after = np.full(len(rounds), np.nan)
    after[:-1] = np.where(follows, values[1:], np.nan)  # rounds are in the order of their keys
    return after


def verifications_of(rows: Table) -> Table:
    """Return one row for each session and verification: verified_s, draft_tokens, and acceptance_length.

    Lengths are not cut at the request's goal. `ratio` is the verifier's signal, 0 if unknown.
    """
    done = rows.where(rows.event.among("done") & rows.kind.among("verify"))
    done = done.where(np.sort(Groups(done.tag, done.request, done.base).first))
    named = {name: getattr(done, name) for name in ("station", "step", "tag", "request", "epoch", "base")}
    return Table.of(
        **named, verified_s=done.time_s, draft_tokens=done.tokens, acceptance_length=done.accepted, ratio=done.ratio,
    )  # fmt: skip


def at_drafter(rows: Table) -> Bools:
    """Return whether each row is of a drafter's station, see `names.py`."""
    station: Words = rows.station
    return station.having(lambda name: name.startswith(DRAFTER))
