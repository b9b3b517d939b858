"""What faults cost: how long sessions decode without their drafter, at which pace, and how soon they are back."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fleet.records.tables import REQUEST
from fleet.records.window import Floats, Metric, Window
from fleet.scenario.faults import Fault, NodeFault
from fleet.stations.session import ERA


def outage_metrics(window: Window, rows: pd.DataFrame, commits: pd.DataFrame) -> dict[str, Metric]:
    """Return the metrics of drafters that were given up; `commits` as `commits_of` tells them."""
    spans, alone, given_up = spans_of(rows, commits), alone_of(rows, commits), rows[rows.event == "overdue"]
    alone_s = _seconds(window, alone.begun_s, alone.time_s)
    tokens = window.sums(alone.time_s, alone.committed)
    rejoins = rejoins_of(rows)
    return {
        "given_up": window.count(given_up.time_s, "drafts"),
        "alone_share": window.ratio(alone_s, _seconds(window, spans.begun_s, spans.ended_s), "share of time"),
        "alone_token_share": window.ratio(tokens, window.sums(commits.time_s, commits.committed), "share of tokens"),
        "alone_tokens_per_s": window.ratio(tokens, alone_s, "tokens/s"),
        "rejoin_s": window.mean(rejoins.rejoined_s, rejoins.rejoined_s - rejoins.time_s, "s"),
    }


def spans_of(rows: pd.DataFrame, commits: pd.DataFrame) -> pd.DataFrame:
    """Return one row a request: begun_s, when it came, and ended_s, when its last token was committed."""
    came_s = rows[rows.event == "join"].groupby(REQUEST).time_s.min()
    return pd.DataFrame({"begun_s": came_s, "ended_s": commits.groupby(REQUEST).time_s.max()}).dropna()


def alone_of(rows: pd.DataFrame, commits: pd.DataFrame) -> pd.DataFrame:
    """Return the commits that a target made alone, with `begun_s`: since when that token was its own business.

    That is since the commit before it, or since the drafter was given up: waiting for a draft is not decoding alone.
    """
    turns = pd.concat([commits, rows[rows.event == "overdue"]]).sort_values([*REQUEST, "time_s", "seq"], kind="stable")
    turns = turns.assign(begun_s=turns.groupby(REQUEST).time_s.shift())
    return turns[(turns.event == "done") & (turns.kind == "decode") & turns.begun_s.notna()]


def rejoins_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the drafters that were given up and came back to the stream: time_s, and rejoined_s.

    They are back when the first draft that they made since is verified, be it of a later request.
    """
    given_up = rows.loc[rows.event == "overdue", ["tag", "request", "epoch", "time_s", "seq"]]
    verified = rows.loc[(rows.event == "done") & (rows.kind == "verify"), ["tag", "request", "epoch", "time_s"]]
    pairs = given_up.merge(verified, on="tag", suffixes=("", "_back"))
    later = (pairs.request_back > pairs.request) | (
        (pairs.request_back == pairs.request) & (pairs.epoch_back // ERA > pairs.epoch // ERA)
    )
    pairs = pairs[later].rename(columns={"time_s_back": "rejoined_s"}).sort_values("rejoined_s", kind="stable")
    pairs = pairs.drop_duplicates(["tag", "time_s", "seq"]).sort_values(["tag", "time_s", "seq"], kind="stable")
    # Who is given up again before a draft was verified has been away since the first time.
    return pairs.drop_duplicates(["tag", "rejoined_s"])[["tag", "request", "time_s", "rejoined_s"]]


def without_steady_state(faults: Sequence[Fault]) -> bool:
    """Whether anything goes wrong at a stated time: no longer run has more of it, and nothing has an interval."""
    return any(isinstance(fault, NodeFault) or fault.at_s > 0 or fault.for_s is not None for fault in faults)


def _seconds(window: Window, begun_s: pd.Series, ended_s: pd.Series) -> Floats:
    """How long these stretches of time lie within each batch, summed over them: shape (batches,)."""
    edges_s, begun, ended = window.edges_s[:, None], begun_s.to_numpy()[None], ended_s.to_numpy()[None]
    return np.diff(np.clip(edges_s - begun, 0.0, ended - begun).sum(axis=1))
