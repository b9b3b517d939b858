"""Cost of faults: time without a drafter, and time to rejoin."""

from collections.abc import Sequence

import numpy as np

from specfleet.fleet.records.columns import Table
from specfleet.fleet.records.metrics.grouped import Groups, at
from specfleet.fleet.records.metrics.tables import requests_of
from specfleet.fleet.records.metrics.window import Metric, Window
from specfleet.fleet.scenario.faults import Fault, NodeFault
from specfleet.fleet.stations.session import ERA


def outage_metrics(window: Window, rows: Table, commits: Table, requests: Table) -> dict[str, Metric]:
    """Return the metrics of lost drafters; `commits` and `requests` are those of the run's findings."""
    alone, given_up = alone_of(rows, commits), rows.where(rows.event.among("overdue"))
    alone_s = window.within(alone.begun_s, alone.time_s)
    rejoins = rejoins_of(rows)
    return {
        "given_up": window.count(given_up.time_s, "drafts"),
        "alone_share": window.ratio(alone_s, window.within(requests.joined_s, requests.last_s), "share of time"),
        "rejoin_s": window.mean(rejoins.rejoined_s, rejoins.rejoined_s - rejoins.time_s, "s"),
    }


def alone_of(rows: Table, commits: Table) -> Table:
    """Return the commits that a target made alone, with `begun_s`, the start of their decoding.

    It starts at the previous commit, or when the drafter was given up: waiting for a draft is not decoding alone. Nor
    is a token that was decoded while a draft was late: a session is alone for whole eras, without a verification.
    """
    eras = Groups(commits.tag, commits.request, commits.epoch // ERA)
    is_drafted = eras.sums(commits.kind.among("verify"))[eras.of] > 0
    given_up = rows.where(rows.event.among("overdue"))
    names = ("tag", "request", "time_s", "seq")
    turns = Table.of(**{name: np.append(getattr(commits, name), getattr(given_up, name)) for name in names})
    alone = np.append(commits.kind.among("decode") & ~is_drafted, np.zeros(len(given_up), dtype=bool))
    order = np.lexsort((turns.seq, turns.time_s, turns.request, turns.tag))
    turns, alone = turns.where(order), alone[order]
    turns = turns.plus(begun_s=at(turns.time_s, requests_of(turns).before()))
    return turns.where(alone & ~np.isnan(turns.begun_s))


def rejoins_of(rows: Table) -> Table:
    """Return lost drafters that rejoined the stream: time_s, and rejoined_s.

    A drafter has rejoined when its first later draft is verified, for the same or a later request.
    """
    given_up = rows.where(rows.event.among("overdue"))
    verified = rows.where(rows.event.among("done") & rows.kind.among("verify"))
    verified = verified.where(np.argsort(verified.time_s, kind="stable"))
    rejoined_s = np.full(len(given_up), np.nan)
    for tag in np.unique(given_up.tag):
        mine, of_tag = given_up.tag == tag, verified.where(verified.tag == tag)
        request, era = (key[mine][:, None] for key in (given_up.request, given_up.epoch // ERA))
        later = (of_tag.request > request) | ((of_tag.request == request) & (of_tag.epoch // ERA > era))
        first = np.where(later.any(axis=1), later.argmax(axis=1) if len(of_tag) else -1, -1)
        rejoined_s[mine] = at(of_tag.time_s, first)
    given_up = given_up.plus(rejoined_s=rejoined_s).where(~np.isnan(rejoined_s))
    given_up = given_up.where(np.lexsort((given_up.seq, given_up.time_s, given_up.tag)))
    # A drafter given up again before a verified draft is lost since the first time.
    back = np.unique(given_up.rejoined_s, return_inverse=True)[1]
    first = np.sort(Groups(given_up.tag, back).first)
    names = ("tag", "request", "time_s", "rejoined_s")
    return Table.of(**{name: getattr(given_up, name)[first] for name in names})


def without_steady_state(faults: Sequence[Fault]) -> bool:
    """Whether a fault happens at a stated time: a longer run has no more of it, so no metric has an interval."""
    return any(isinstance(fault, NodeFault) or fault.at_s > 0 or fault.for_s is not None for fault in faults)
