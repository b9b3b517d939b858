"""Rows of serving targets: admission, shares of the next step, and its plan, as `fleet.policies.continuous`."""

from specfleet.sim.fast.compiled import compiled, compiled_inline
from specfleet.sim.fast.events import CHUNK, DECODE, NO_STEP, PREFILL, VERIFY, Array, Record
from specfleet.sim.fast.serving_cache import begin_text, end_text, extend_text, find
from specfleet.sim.fast.serving_state import DECODE_LATE, MIXED, WAIT, Limits, Sharing, Slots


@compiled
def open_row(row: Record, request: int, texts: Array, joined_s: float) -> None:
    """Let a row have a request."""
    row.request, row.committed, row.joined_s = request, texts[request].prompt, joined_s
    row.epoch, row.unanswered, row.drafted_epoch, row.drafted_s, row.begun = 0, 0, -1, -1.0, False
    row.length, row.lengths_to, row.drawn = 0, 0, 0


@compiled_inline
def new_row(texts: Array, streams: Array, slots: Slots, clock: Record, request: int, tag: int, joined_s: float) -> int:
    """Let a free row have a request of an arrival, and return its number."""
    stream = clock.free
    row, home = streams[stream], slots.homes[tag % len(slots.homes)]
    clock.free = row.behind
    clock.frees -= 1
    row.target, row.drafter, row.down = home.target, home.drafter, home.down
    open_row(row, request, texts, joined_s)
    row.ended_s, row.open_there, row.waits_there, row.granted, row.passed = -1.0, -1, False, False, 0
    return int(stream)


@compiled
def free_row(streams: Array, clock: Record, stream: int) -> None:
    """Free the row of an arrival that nothing refers to any more."""
    streams[stream].behind = clock.free
    clock.free = stream
    clock.frees += 1


@compiled
def queue(target: Record, streams: Array, stream: int, first: bool) -> None:
    """Let a stream wait for admission, before all others or behind them, with the newest work."""
    row = streams[stream]
    row.work, row.place, row.computed, row.blocks, row.share, row.drafts = PREFILL, target.works_made, 0, 0, 0, 0
    target.works_made += 1
    row.behind = target.first if first else -1
    if target.first < 0:
        target.first = target.newest = stream
    elif first:
        target.first = stream
    else:
        streams[target.newest].behind = stream
        target.newest = stream


@compiled
def add_work(target: Record, streams: Array, slots: Slots, stream: int, kind: int) -> None:
    """Give a running row its next work, behind all other work."""
    row = streams[stream]
    row.work, row.place = kind, target.works_made
    target.works_made += 1
    slots.works[target.start + target.works] = stream
    target.works += 1


@compiled
def drop_work(target: Record, slots: Slots, stream: int) -> None:
    """Remove the work of a running row."""
    place, end = target.start, target.start + target.works
    while slots.works[place] != stream:
        place += 1
    for later in range(place + 1, end):
        slots.works[later - 1] = slots.works[later]
    target.works -= 1


@compiled_inline
def preempt(target: Record, streams: Array, slots: Slots, sharing: Sharing | None) -> None:
    """Take its KV cache from the row that was admitted last; it waits before all others."""
    target.running -= 1
    stream = slots.running[target.start + target.running]
    row = streams[stream]
    target.free_blocks += row.blocks if sharing is None else end_text(sharing, target, row)
    if row.work != NO_STEP:
        drop_work(target, slots, stream)
    row.epoch += row.epoch > 0
    row.granted = False
    queue(target, streams, stream, True)


@compiled_inline
def admit(target: Record, texts: Array, streams: Array, slots: Slots, clock: Record, targets: int) -> Record:
    """Let the first waiting stream run, and return its row. Its work keeps its place among all work."""
    stream = target.first
    if stream >= 0:
        row = streams[stream]
        target.first = row.behind
    else:
        stream = new_row(texts, streams, slots, clock, target.head, target.head, texts[target.head].opens_s)
        row = streams[stream]
        row.work, row.place, row.computed, row.drafts = PREFILL, texts[target.head].place, 0, 0
        target.fresh -= 1
        target.head += targets
    slots.running[target.start + target.running] = stream
    target.running += 1
    place = target.start + target.works
    while place > target.start and streams[slots.works[place - 1]].place > row.place:
        slots.works[place] = slots.works[place - 1]
        place -= 1
    slots.works[place] = stream
    target.works += 1
    return row


@compiled
def admits(target: Record, limits: Limits) -> bool:
    """Whether a stream waits for a row, and one is free."""
    return bool((target.first >= 0 or target.fresh > 0) and target.running < limits.max_num_seqs)


@compiled
def next_fits(target: Record, texts: Array, streams: Array, limits: Limits) -> bool:
    """Whether the next stream can be admitted. A target with drafts of its own has other work, or no row."""
    if not admits(target, limits):
        return False
    known = streams[target.first].committed if target.first >= 0 else texts[target.head].prompt
    return bool(target.running == 0 or -(-known // limits.block_size) <= target.free_blocks)


@compiled
def prefills(target: Record, texts: Array, streams: Array, slots: Slots, limits: Limits) -> bool:
    """Whether a target has a prompt to prefill."""
    for place in range(target.start, target.start + target.works):
        if streams[slots.works[place]].work == PREFILL:
            return True
    return next_fits(target, texts, streams, limits)


@compiled
def goes_on(target: Record, streams: Array, slots: Slots, limits: Limits) -> bool:
    """Whether the first row that has work finds room for it: blocks that are free, or those of rows behind it. If not,
    it is itself preempted, and its text needs room."""
    room, size, most, enough = target.free_blocks, limits.block_size, limits.max_num_batched_tokens, True
    if room > most // size:
        return True
    for place in range(target.start + target.running - 1, target.start - 1, -1):
        row = streams[slots.running[place]]
        room += row.blocks
        if row.work != NO_STEP:
            part = row.computed + min(row.committed - row.computed + row.drafts, most)
            enough = -(-min(part, row.committed) // size) <= room
    return enough


@compiled_inline
def schedule(
    target: Record, texts: Array, streams: Array, slots: Slots, limits: Limits, clock: Record, sharing: Sharing | None
) -> None:  # fmt: skip
    """Plan the next step as `ContinuousBatching.schedule`, of the rows that `Rows.next_step` picks."""
    while True:
        planned, preempted = False, False
        if limits.prefill_first:
            planned, preempted = schedule_rows(target, texts, streams, slots, limits, clock, sharing, True, False)
        if not planned:
            planned, preempted = schedule_rows(target, texts, streams, slots, limits, clock, sharing, False, preempted)
        if planned or not preempted:  # preemption alone is no step
            break
    plan_target_step(target, streams, slots, limits)


@compiled_inline
def schedule_rows(  # noqa: C901 (calls with many arrays are slow)
    target: Record, texts: Array, streams: Array, slots: Slots, limits: Limits, clock: Record, sharing: Sharing | None,
    prompts_alone: bool, preempted: bool,
) -> tuple[bool, bool]:  # fmt: skip
    """Set the shares of all rows, or of prompts, and return whether there are any, and whether a row was preempted."""
    left, size, place = limits.max_num_batched_tokens, limits.block_size, 0
    waits = limits.late == WAIT
    only = PREFILL if waits and prefills(target, texts, streams, slots, limits) else VERIFY
    while place < target.running:
        row = streams[slots.running[target.start + place]]
        if (waits and row.work != only) or (row.work == NO_STEP and limits.late != DECODE_LATE):
            row.share = 0
            place += 1
            continue
        pending = row.committed - row.computed
        tokens = min(pending + row.drafts, left - limits.slots)
        if prompts_alone and pending == 1 and row.computed > 0:
            tokens = 0
        row.share = max(tokens, 0)
        if tokens > 0:
            needed = -(-(row.computed + tokens + limits.lookahead) // size)
            while needed - row.blocks > target.free_blocks and place < target.running:
                preempt(target, streams, slots, sharing)
                preempted = True
            if place == target.running:  # the row itself was preempted
                break
            more = max(needed - row.blocks, 0)
            if sharing is not None:
                known = min(row.computed + tokens, row.committed)
                if more > 0 or known // sharing.size > row.full:
                    extend_text(sharing, target, row, needed, known)
            row.blocks += more
            target.free_blocks -= more
            row.share_drafts = max(tokens - pending, 0)
            left -= tokens + limits.slots
        place += 1
    while left > limits.slots and not preempted and admits(target, limits) and not (waits and only == VERIFY):
        known = streams[target.first].committed if target.first >= 0 else texts[target.head].prompt
        hits, unused = 0, 0  # blocks that are found, and those of them that no other row uses
        if sharing is not None:
            request = streams[target.first].request if target.first >= 0 else target.head
            hits, unused = find(sharing, target, request, known)
        computed = hits * size
        tokens = min(known - computed, left - limits.slots)
        needed = -(-(computed + tokens + limits.lookahead) // size)
        if max(needed, -(-known // size)) - hits + unused > target.free_blocks:
            break
        row = admit(target, texts, streams, slots, clock, limits.targets)
        if sharing is not None:
            begin_text(sharing, target, row, hits)
            extend_text(sharing, target, row, needed, computed + tokens)
        row.share, row.share_drafts, row.blocks = tokens, 0, needed
        target.free_blocks -= needed - hits + unused
        left -= tokens + limits.slots
    return left < limits.max_num_batched_tokens, preempted


@compiled
def add_member(target: Record, row: Record, slots: Slots, stream: int, kind: int) -> None:
    """Add a row with a share to the next step of a target."""
    place, tokens, fed, context = target.start + target.members, row.share, row.share, row.committed
    if kind in (PREFILL, CHUNK):
        context = row.computed
    elif kind == VERIFY:
        tokens, fed = row.share_drafts, row.share_drafts + 1
    slots.members[place], slots.kinds[place], slots.tokens[place] = stream, kind, tokens
    slots.fed[place], slots.context[place] = fed, context
    target.step = kind if target.members == 0 or target.step == kind else MIXED
    target.members += 1


@compiled_inline
def plan_target_step(target: Record, streams: Array, slots: Slots, limits: Limits) -> None:
    """Make the members of a step from the shares, in the order of their work. Only chunks keep their work."""
    start, kept = target.start, 0
    target.members = 0
    for number in range(target.works):
        stream = slots.works[start + number]
        row = streams[stream]
        if row.share > 0:
            is_chunk = row.work == PREFILL and row.share < row.committed - row.computed
            add_member(target, row, slots, stream, CHUNK if is_chunk else row.work)
            if not is_chunk:
                continue
        slots.works[start + kept] = stream
        kept += 1
    target.works = kept
    if limits.late == DECODE_LATE:  # rows without a draft come last
        for place in range(start, start + target.running):
            row = streams[slots.running[place]]
            if row.work == NO_STEP and row.share > 0:
                add_member(target, row, slots, slots.running[place], DECODE)


@compiled_inline
def plan_draft(target: Record, streams: Array, slots: Slots, limits: Limits) -> None:
    """Plan the draft of the members of the step before."""
    target.step, target.follows = target.follows, NO_STEP
    for place in range(target.start, target.start + target.members):
        row = streams[slots.members[place]]
        depth = limits.depth if row.granted else 0
        if limits.positions > 0:
            depth = max(min(depth, limits.positions - row.committed), 0)
        slots.kinds[place], slots.tokens[place] = target.step, depth
