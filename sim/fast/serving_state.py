"""The state of serving targets in their compiled loop, beside the records of `layout.py`."""

from typing import NamedTuple

from specfleet.sim.fast.events import Array

MIXED = 7  # a step of several kinds; its parts have theirs
LATE = SKIP, DECODE_LATE, WAIT = 0, 1, 2  # values of `verifiers.late`


class Limits(NamedTuple):
    """The rule of `ContinuousBatching`, and how targets or drafters draft.

    - `prefill_first`, and `drafts`, `reads_prompts` of targets that draft themselves: 0 or 1.
    - `late`: a value of LATE; `group`: most sessions in a step of a drafter elsewhere.
    - `streams`: of a closed loop, whose next requests arrive `after_s` seconds after the last ones are complete; 0 for
      arrivals, which are dealt to so many `targets` in turn.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    lookahead: int
    slots: int
    prefill_first: int
    drafts: int
    depth: int
    positions: int
    reads_prompts: int
    late: int
    group: int
    streams: int
    after_s: float
    targets: int


class Laws(NamedTuple):
    """Step times, their rooflines, and the points and the attention of these.

    - `gaps_s`, `slowdowns`: idle gaps of drafters elsewhere, and the slowdowns of drafts after them.
    - `catch_up_s`: time of a draft after an accepted one.
    """

    laws: Array
    rooflines: Array
    points: Array
    attention: Array
    gaps_s: Array
    slowdowns: Array
    catch_up_s: float


class Slots(NamedTuple):
    """Places of the rows of each target, from `start` on.

    - `running`: streams in order of admission, or the group of a drafter; `works`: those with work, in its order;
      `members`: those in the step.
    - `ended`: streams whose requests are complete, until their results leave, after the draft.
    - `kinds`, `tokens`: of the parts of the members; `fed`, `context`: tokens of these in one pass; `waits_s`: of
      requests for drafts.
    - `homes`: of arrivals, in turn.
    """

    running: Array
    works: Array
    members: Array
    ended: Array
    kinds: Array
    tokens: Array
    fed: Array
    context: Array
    waits_s: Array
    homes: Array


class Sharing(NamedTuple):
    """Prefix caches of all targets (`serving_cache.py`), the identities of texts, and conversations.

    - `size`: tokens of a block; of caches in which nothing is found, more than a text has.
    - `blocks`, `contents`: by number; `buckets`: the first content of each; `states`: one record.
    - `tables`: blocks of running rows; `spares`: those tables that no row has.
    - `starts`, `sources`, `ends`: as `Identities`. `again`: found blocks that are computed again;
      `most`: blocks of all targets.
    - `thinks_s`: of a later turn, the time before it, else -1. Of conversations with arrivals, `tags`: the stream of
      each request, and `firsts`: the first turns.
    """

    blocks: Array
    contents: Array
    buckets: Array
    states: Array
    tables: Array
    spares: Array
    starts: Array
    sources: Array
    ends: Array
    thinks_s: Array
    tags: Array
    firsts: Array
    size: int
    again: int
    most: int


class StepLog(NamedTuple):
    """The parts of steps in the order of their starts, and the blocks of rows of the event table in its order."""

    parts: Array
    blocks: Array
