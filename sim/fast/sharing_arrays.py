"""Arrays of prefix caches and of conversations, for the compiled loop of serving targets."""

import numpy as np

from specfleet.fleet.policies.blocks import UNLIMITED
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Requests, identities_of
from specfleet.sim.fast import layout
from specfleet.sim.fast.compiled import CODE, ready
from specfleet.sim.fast.events import Array
from specfleet.sim.fast.serving_cache import link_all
from specfleet.sim.fast.serving_state import Sharing

FIRST_BLOCKS = 1 << 12


def sharing_of(fleet: Fleet, requests: Requests, rows: int) -> Sharing | None:
    """Return what texts share, with empty prefix caches for so many running rows; None where they share nothing.

    Raises InputError for a trace that blocks do not divide.
    """
    rule, drafts, targets = fleet.verifiers.batching, fleet.verifiers.drafts, fleet.verifiers.count
    if not (fleet.verifiers.prefix_cache or fleet.workload.conversations):
        return None
    longest = int((requests.prompts + requests.answers).max()) + fleet.room.longest_draft + rule.lookahead
    limits = [fleet.verifiers.batching_of(target).kv_blocks or UNLIMITED for target in range(targets)]
    states = np.zeros(1, dtype=layout.A_CACHE_STATE)
    states["blocks"], states["contents"], states["spares"] = targets, targets, rows
    is_first = requests.before < 0
    tags = requests.conversations if fleet.workload.conversations and not fleet.streams else np.zeros(0, dtype=np.int64)
    made = Sharing(
        np.zeros(0, dtype=layout.A_CACHED), np.zeros(0, dtype=layout.A_CONTENT), np.zeros(0), states,
        tables=np.zeros((rows, longest // rule.block_size + 1), dtype=np.int32), spares=np.arange(rows, dtype=np.int32),
        **identities_of(fleet, requests)._asdict(), thinks_s=np.where(is_first, -1.0, requests.thinks_s),
        tags=tags, firsts=np.flatnonzero(is_first),
        size=rule.block_size if fleet.verifiers.prefix_cache else UNLIMITED, again=drafts.again if drafts else 0,
        most=targets + sum(limits),
    )  # fmt: skip
    sharing = with_blocks(made, targets)
    sharing.blocks["before"][:targets] = sharing.blocks["after"][:targets] = np.arange(targets)
    return sharing


def with_blocks(sharing: Sharing, targets: int) -> Sharing:
    """Return the caches with room for twice as many blocks, and for a step's: all blocks of all running rows."""
    used, step, state = len(sharing.blocks), sharing.tables.size, sharing.states[0]
    room = min(targets + used + max(used, step, FIRST_BLOCKS), sharing.most)
    blocks, contents = (np.zeros(room, dtype=made.dtype) for made in (sharing.blocks, sharing.contents))
    blocks[:used], contents[:used] = sharing.blocks, sharing.contents
    buckets = np.zeros(1 << room.bit_length(), dtype=np.int32)
    arguments = CODE, contents, buckets, int(state["contents"]), targets
    ready(link_all, *arguments)(*arguments)
    state["enough"] = room if room == sharing.most else room - step
    return sharing._replace(blocks=blocks, contents=contents, buckets=buckets)


def identity_lists(sharing: Sharing, requests: Array) -> tuple[Array, Array]:
    """Return the identities of these requests as Arrow's lists have them: their bounds, and all values; -1 has none."""
    counts = np.where(requests < 0, 0, np.diff(sharing.starts)[requests])
    bounds = np.append(0, np.cumsum(counts))
    parts = np.arange(bounds[-1]) + np.repeat(sharing.starts[requests] - bounds[:-1], counts)
    return 2 * bounds, np.stack([sharing.sources[parts], sharing.ends[parts]], axis=1).ravel()
