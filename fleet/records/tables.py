"""Tables from records: commits, rounds, verifications and cache contents, the same for both worlds.

Metrics are estimates from these tables. Times are in seconds since the run began, tokens and bytes as named.
"""

from functools import reduce

import numpy as np
import pandas as pd

from fleet.scenario.names import DRAFTER, ROUTER
from fleet.scenario.settled import Fleet
from fleet.stations.session import INCARNATION

REQUEST = ["tag", "request"]
ROUND = ["tag", "request", "epoch"]  # what names one round of one stream
COMMITTING = ("prefill", "verify", "decode")  # steps of a target, each of which adds tokens to its stream


def commits_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the finished verifier steps with `committed`, the tokens that each added to its stream.

    `from_draft`: those of them that the drafter proposed. Tokens beyond a request's goal, or beyond the end
    that the target gave the text by itself, are dropped, not committed; so is what a target had committed of a request
    when its process died.
    """
    committing = rows.kind.isin(COMMITTING) & ~at_drafter(rows)
    done = rows[(rows.event == "done") & committing]
    if (done.epoch >= INCARNATION).any():
        started = done.epoch // INCARNATION
        done = done[started == started.groupby([done[name] for name in REQUEST]).transform("max")]
    done = done.assign(end=done.goal.where(done.flag, np.iinfo(np.int64).max)).drop(columns="goal")
    goals = rows.loc[rows.event == "join", [*REQUEST, "goal"]].drop_duplicates(REQUEST)
    done = done.merge(goals, on=REQUEST, how="left")
    room = np.minimum(done.goal, done.end) - done.base
    return done.drop(columns="end").assign(
        committed=np.minimum(done.accepted + 1, room), from_draft=np.minimum(done.accepted, room)
    )


def rounds_table(fleet: Fleet, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row a round: a draft with its way and its verification, as `rounds_of` tells.

    Ahead of its target a drafter is not asked and does not wait, so a round is a verification there, and the table that
    of `verifications_of`.
    """
    return rounds_of(rows) if fleet.in_turn else verifications_of(rows)


def rounds_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each round that was drafted; NaN where a later part of it is missing.

    Times in seconds: drafted_s and verified_s when the two steps ended, service_s (S) and verify_s (t_v) how long they
    took on their devices, wait_s (T_wait) from the request's arrival until its group was begun, idle_gap_s the
    drafter's idleness before that, return_s (Z) until the next request arrived, at_target_s from the draft's arrival
    until it was verified. reached_s is when the request reached its drafter, asked_s when it would have without the
    time for which a router held it: that is waiting for a drafter, and no part of the way. Each difference is taken on
    one host's clock. draft_tokens and acceptance_length in tokens; request_bytes and draft_bytes on the wire.
    """
    drafting = at_drafter(rows) | (rows.kind == "draft")
    drafter, targets = rows[drafting], rows[~drafting]
    requests = _requests(rows, drafter)
    drafts = drafter[(drafter.event == "done") & (drafter.kind == "draft")]
    verifications = targets[(targets.event == "done") & (targets.kind == "verify")]
    parts = [
        _first(drafts, time_s="drafted_s", duration_s="service_s", tokens="draft_tokens"),
        _first(requests, asked_s="asked_s", time_s="reached_s", payload_bytes="request_bytes"),
        _first(drafter[drafter.event == "start"], time_s="begun_s", idle_gap_s="idle_gap_s"),
        _first(targets[targets.event == "draft"], time_s="arrived_s", payload_bytes="draft_bytes"),
        _first(verifications, time_s="verified_s", duration_s="verify_s", accepted="acceptance_length"),
        _first(requests.assign(epoch=requests.epoch - 1), asked_s="returned_s"),
    ]
    rounds = reduce(lambda left, right: left.merge(right, on=ROUND, how="left"), parts)
    return rounds.assign(
        wait_s=rounds.begun_s - rounds.asked_s,
        return_s=rounds.returned_s - rounds.drafted_s,
        at_target_s=rounds.verified_s - rounds.arrived_s,
    )


def _requests(rows: pd.DataFrame, drafter: pd.DataFrame) -> pd.DataFrame:
    """Return the requests that reached a drafter, with `asked_s`: when they would have if no router had held them."""
    requests, routed = drafter[drafter.event == "draft-request"], rows[rows.station == ROUTER]
    if routed.empty:
        return requests.assign(asked_s=requests.time_s)
    came = _first(routed[routed.event == "draft-request"], time_s="came_s")
    sent = _first(routed[routed.event == "done"], time_s="sent_s")
    requests = requests.merge(came, on=ROUND, how="left").merge(sent, on=ROUND, how="left")
    return requests.assign(asked_s=requests.time_s - (requests.sent_s - requests.came_s))


def cache_bytes(rows: pd.DataFrame, bytes_per_token: int) -> pd.DataFrame:
    """Return what the drafters' caches hold after each change: time_s, station, tag, bytes_of_tag, bytes (of all).

    A session holds its prefix from its first request on until it leaves; evicted ones are counted, as if they stayed.
    Who was refused holds nothing.
    """
    changes = rows[at_drafter(rows) & rows.event.isin(["draft-request", "leave"])].sort_values("time_s", kind="stable")
    refused = pd.MultiIndex.from_frame(rows.loc[rows.event == "refusal", REQUEST])
    # Nobody asks again after a refusal, so that it answers the last request.
    answered = pd.MultiIndex.from_frame(changes[REQUEST]).isin(refused) & ~changes.duplicated(REQUEST, keep="last")
    changes = changes[~answered]
    held = (changes.base * bytes_per_token).where(changes.event == "draft-request", 0)
    before = held.groupby([changes.station, changes.tag]).shift(fill_value=0)
    table = changes[["time_s", "station", "tag"]].assign(bytes_of_tag=held, bytes=(held - before).cumsum())
    return table.reset_index(drop=True)


def verifications_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row a session and verification: verified_s, draft_tokens, and acceptance_length of them.

    Nothing is cut at the request's goal. `ratio` and `kld` are what the verifier learned besides, 0 where unknown.
    """
    done = rows[(rows.event == "done") & (rows.kind == "verify")].drop_duplicates([*REQUEST, "base"])
    columns = {"time_s": "verified_s", "tokens": "draft_tokens", "accepted": "acceptance_length"}
    return done.rename(columns=columns)[["station", "step", *ROUND, "base", *columns.values(), "ratio", "kld"]]


def _first(rows: pd.DataFrame, **columns: str) -> pd.DataFrame:
    """Keep the first row of each round, a repeated message changes nothing; rename `columns` and drop the others."""
    return rows[[*ROUND, *columns]].drop_duplicates(ROUND).rename(columns=columns)


def at_drafter(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Return whether each row is of a drafter's station, see `names.py`."""
    return rows.station.str.startswith(DRAFTER).astype(bool)
