"""Contents of drafters' caches, from the rows of a run."""

import numpy as np

from fleet.records.columns import Table
from fleet.records.metrics.grouped import Groups, find
from fleet.records.metrics.tables import at_drafter, requests_of


def cache_bytes(rows: Table, bytes_per_token: int) -> Table:
    """Return the bytes of the drafters' caches after each change: time_s, station, tag, bytes_of_tag, bytes (of all).

    A session holds its prefix from its first request on until it leaves; evicted ones still count. A refused session
    holds nothing.
    """
    changes = rows.where(at_drafter(rows) & rows.event.among("draft-request", "leave"))
    changes = changes.where(np.argsort(changes.time_s, kind="stable"))
    refusals = rows.where(rows.event.among("refusal"))
    refused = find((changes.tag, changes.request), (refusals.tag, refusals.request)) >= 0
    last = np.zeros(len(changes), dtype=bool)
    last[requests_of(changes).last] = True  # no request follows a refusal, so it answers the last one
    changes = changes.where(~(refused & last))
    held = np.where(changes.event.among("draft-request"), changes.base * bytes_per_token, 0)
    before = Groups(changes.station, changes.tag).before()
    more = held - np.where(before >= 0, held[before], 0)
    return Table.of(
        time_s=changes.time_s, station=changes.station, tag=changes.tag, bytes_of_tag=held, bytes=np.cumsum(more)
    )
