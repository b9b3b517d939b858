"""Tables from records: commits, rounds, verifications and cache contents, the same for both worlds.

Metrics are estimates from these tables. Times are in seconds since the run began, lengths in tokens.
"""

import numpy as np

from specfleet.fleet.records.columns import Bools, Integers, Table, Words
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
    done = rows.of_event("done")
    done = done.where(done.kind.among(*COMMITTING) & ~at_drafter(done))
    started = done.epoch // INCARNATION
    if started.any():
        requests = requests_of(done)
        done = done.where(started == requests.largest(started)[requests.of])
    requests, joins = requests_of(done), rows.of_event("join")
    named = done.tag[requests.first], done.request[requests.first]
    goal = at(joins.goal, find(named, (joins.tag, joins.request)))[requests.of]
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
        done = rows.of_event("done")
        drafts = done.where(done.kind.among(*DRAFTING) & ~at_drafter(done))
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
    joins = rows.of_event("join")
    return joins.where(joins.base > 0)


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
    done, begun, asking, came = (rows.of_event(event) for event in ("done", "start", "draft-request", "draft"))
    drafts = done.where(done.kind.among("draft"))
    drafts = drafts.where(Groups(drafts.tag, drafts.request, drafts.epoch).is_first)
    begun = begun.where(at_drafter(begun) | begun.kind.among("draft"))
    came, verified = came.where(~at_drafter(came)), done.where(~at_drafter(done) & done.kind.among("verify"))
    requests, routed = asking.where(at_drafter(asking)), asking.where(asking.station.among(ROUTER))
    sent = done.where(done.station.among(ROUTER))

    def first_in(table: Table, later: int = 0) -> Integers:
        """Return the first row of each round, or of so many rounds later, in a table."""
        wanted = drafts.tag, drafts.request, drafts.epoch + later
        return find(wanted, (table.tag, table.request, table.epoch))

    def asked_s(later: int = 0) -> Floats:
        reached_s = at(requests.time_s, first_in(requests, later))
        if not len(routed):
            return reached_s
        return reached_s - (at(sent.time_s, first_in(sent, later)) - at(routed.time_s, first_in(routed, later)))

    begins, ends, asked, returned_s = first_in(begun), first_in(verified), asked_s(), asked_s(1)
    begun_s, verified_s = at(begun.time_s, begins), at(verified.time_s, ends)
    arrived_s = at(came.time_s, first_in(came))
    return_s, at_target_s = returned_s - drafts.time_s, verified_s - arrived_s
    named = drafts.named(
        tag="tag", request="request", epoch="epoch", drafted_s="time_s", service_s="duration_s", draft_tokens="tokens"
    )
    return named.plus(
        asked_s=asked, begun_s=begun_s, idle_gap_s=at(begun.idle_gap_s, begins), arrived_s=arrived_s,
        verified_s=verified_s, verify_s=at(verified.duration_s, ends),
        acceptance_length=at(verified.accepted, ends), returned_s=returned_s, wait_s=begun_s - asked,
        return_s=return_s, at_target_s=at_target_s, communication_s=return_s - at_target_s,
        round_s=returned_s - asked,
    )  # fmt: skip


def verifications_of(rows: Table) -> Table:
    """Return one row for each session and verification: verified_s, draft_tokens, and acceptance_length.

    Lengths are not cut at the request's goal. `ratio` is the verifier's signal, 0 if unknown.
    """
    done = rows.of_event("done")
    done = done.where(done.kind.among("verify"))
    return done.where(Groups(done.tag, done.request, done.base).is_first).named(
        station="station", step="step", tag="tag", request="request", epoch="epoch", base="base", verified_s="time_s",
        draft_tokens="tokens", acceptance_length="accepted", ratio="ratio",
    )  # fmt: skip


def at_drafter(rows: Table) -> Bools:
    """Return whether each row is of a drafter's station, see `names.py`."""
    station: Words = rows.station
    return station.having(lambda name: name.startswith(DRAFTER))
