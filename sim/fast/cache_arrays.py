"""Arrays of prefix caches and of conversations, for the compiled loop of serving targets."""

import numpy as np

from specfleet.fleet.policies.blocks import UNLIMITED
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import Requests, identities_of
from specfleet.sim.fast import layout
from specfleet.sim.fast.compiled import CODE, ready
from specfleet.sim.fast.events import Array
from specfleet.sim.fast.serving_cache import link_all
from specfleet.sim.fast.serving_state import Cache, Talks

FIRST_BLOCKS = 1 << 12


def cache_of(fleet: Fleet, requests: Requests, rows: int) -> Cache | None:
    """Return empty prefix caches for so many running rows; None for a fleet without them.

    Raises InputError for a trace that blocks do not divide.
    """
    if not fleet.verifiers.prefix_cache:
        return None
    rule, drafts, targets = fleet.verifiers.batching, fleet.verifiers.drafts, fleet.verifiers.count
    longest = int((requests.prompts + requests.answers).max()) + fleet.room.longest_draft + rule.lookahead
    tables = np.zeros((rows, longest // rule.block_size + 1), dtype=np.int32)
    states = np.zeros(1, dtype=layout.A_CACHE_STATE)
    states["blocks"] = states["contents"] = targets
    states["spares"] = rows
    none = np.zeros(0, dtype=layout.A_CACHED), np.zeros(0, dtype=layout.A_CONTENT)
    spares, again = np.arange(rows, dtype=np.int32), drafts.again if drafts else 0
    limits = [fleet.verifiers.batching_of(target).kv_blocks or UNLIMITED for target in range(targets)]
    identities, most = identities_of(fleet, requests), targets + sum(limits)
    cache = with_blocks(Cache(*none, np.zeros(0), states, tables, spares, *identities, again, most), targets)
    cache.blocks["before"][:targets] = cache.blocks["after"][:targets] = np.arange(targets)
    return cache


def with_blocks(cache: Cache, targets: int) -> Cache:
    """Return the caches with room for twice as many blocks, and for a step's: all blocks of all running rows."""
    used, step, state = len(cache.blocks), cache.tables.size, cache.states[0]
    room = min(targets + used + max(used, step, FIRST_BLOCKS), cache.most)
    blocks, contents = (np.zeros(room, dtype=made.dtype) for made in (cache.blocks, cache.contents))
    blocks[:used], contents[:used] = cache.blocks, cache.contents
    buckets = np.zeros(1 << len(blocks).bit_length(), dtype=np.int32)
    arguments = CODE, contents, buckets, int(state["contents"]), targets
    ready(link_all, *arguments)(*arguments)
    state["enough"] = room if room == cache.most else room - step
    return cache._replace(blocks=blocks, contents=contents, buckets=buckets)


def talks_of(fleet: Fleet, requests: Requests) -> Talks | None:
    """Return the conversations of a fleet; None for one without."""
    if not fleet.workload.conversations:
        return None
    is_first, tags = requests.before < 0, requests.conversations
    return Talks(np.where(is_first, -1.0, requests.thinks_s), tags, np.flatnonzero(is_first))


def identity_lists(cache: Cache, requests: Array) -> tuple[Array, Array]:
    """Return the identities of these requests as Arrow's lists have them: their bounds, and all values; -1 has none."""
    counts = np.where(requests < 0, 0, np.diff(cache.starts)[requests])
    bounds = np.append(0, np.cumsum(counts))
    parts = np.arange(bounds[-1]) + np.repeat(cache.starts[requests] - bounds[:-1], counts)
    return 2 * bounds, np.stack([cache.sources[parts], cache.ends[parts]], axis=1).ravel()
