"""The compiled loop of serving targets: continuous batching without drafters elsewhere, on arrays.

1. A request joins its target and waits. `schedule` admits it within the limits, as `fleet.policies.continuous` does.
2. A step ends for all of its members at once. Those that go on have work again: they decode, or they draft on the
   target's device and are verified. Times are those of `fleet.times.mixed`, added in the same order.
3. A target has at most one pending event, the end of a step or of the delay before it. Arrivals are in a ring by time.
   Of several events at one time, that which was scheduled first goes first, as in SimPy.
4. Before a step's ratios are drawn, and before a step ends, the loop checks the blocks of random numbers. If one is
   empty, the loop returns and continues at the next call.

`serving_arrays.py` fills the arrays of the records of `layout.py`.

All code of this loop is in this file: numba's cache does not see changes of functions or constants in other files.
"""

from typing import Any, NamedTuple

from sim.fast.compiled import compiled

Array = Any  # a numpy array of numbers or of records of `layout.py`
Record = Any  # a record of `layout.py`
Numbers = Any  # those of `kernel.py`

# reasons for which the loop returns, events of rows, and kinds of steps: as in `kernel.py`
OVER, ROWS, RATIOS, LENGTHS = 0, 1, 2, 3
JOIN, START, DONE = 0, 4, 5
NO_STEP, PREFILL, DRAFTING, VERIFY, DECODE, CHUNK, DRAFT_PREFILL = 0, 1, 2, 3, 4, 5, 6
MIXED = 7  # several kinds; rows have those of their parts

ARRIVAL, NOTHING = -1, -2  # in place of a target
NEVER_S = float("inf")


class Limits(NamedTuple):
    """The rule of `ContinuousBatching`, and how targets draft: all but its numbers are 0 or 1."""

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


class Laws(NamedTuple):
    """Step times, their rooflines, and the points and the attention of these."""

    laws: Array
    rooflines: Array
    points: Array
    attention: Array


class Slots(NamedTuple):
    """Places of the rows of each target, from `start` on, and what waits for its time.

    - `running`: streams in order of admission; `works`: those with work, in its order; `members`: those in the step.
    - `ended`: streams whose requests are complete, until their results leave, after the draft.
    - `kinds`, `tokens`: of the parts of the members; `fed`, `context`: tokens of these in one pass.
    - `due_s`, `order`: time of each target's next event, infinite for none, and its place in the order of scheduling.
    - `arrivals`: the ring of streams with a next request, by time.
    """

    running: Array
    works: Array
    members: Array
    ended: Array
    kinds: Array
    tokens: Array
    fed: Array
    context: Array
    due_s: Array
    order: Array
    arrivals: Array


class StepLog(NamedTuple):
    """The parts of steps in the order of their starts, and the blocks of rows of the event table in its order."""

    parts: Array
    blocks: Array


@compiled
def is_empty(numbers: Numbers, source: int) -> bool:
    """Whether a source has no ratio left; -1 is the source of ones."""
    return bool(source >= 0 and numbers.at[source] == numbers.to[source])


@compiled
def take(numbers: Numbers, source: int) -> float:
    """Take the next ratio of a source."""
    if source < 0:
        return 1.0
    place = numbers.at[source]
    numbers.at[source] = place + 1
    return float(numbers.pool[place])


@compiled
def products_s(laws: Laws, roofline: Record, fed: float) -> float:
    """Return the time of a pass without attention, as `Roofline.products_s`."""
    low, high = 0, roofline.points
    while low < high:
        middle = (low + high) // 2
        if fed < laws.points[roofline.first + middle].tokens:
            high = middle
        else:
            low = middle + 1
    place = roofline.first + min(max(low, 1), roofline.points - 1)
    left, right = laws.points[place - 1], laws.points[place]
    share = max(fed - left.tokens, 0.0) / (right.tokens - left.tokens)
    return float(left.pass_s + share * (right.pass_s - left.pass_s))


@compiled
def work_s(kind: Record, each: float, fed: float, rows: float, context: float) -> tuple[float, float]:
    """Return the time of reading and of computing of one kind of attention, as `AttentionTime.work_s`."""
    own, attended = (each + 1) / 2, context
    if kind.window > 0:
        own, attended = min(own, kind.window), min(context, kind.window)
    if 0 < kind.long_from <= each:
        long_s = kind.long_pair * kind.pair_s * fed * (attended + own)
        return kind.read_s * (rows * attended + kind.long_write * fed), long_s
    return kind.read_s * (rows * attended + fed), kind.pair_s * fed * (attended + own)


@compiled
def roofline_s(laws: Laws, roofline: Record, tokens: float, context: float, rows: float, row_tokens: float) -> float:
    """Return the mean time in seconds, as `Roofline.mean_s`."""
    if tokens <= 0:
        return 0.0
    fed = tokens + row_tokens
    each, passes = tokens, 1.0
    if roofline.in_turn:
        each, fed, passes, context = 1.0, fed / tokens, tokens, context + (tokens - 1) / 2
    device_s, p = products_s(laws, roofline, fed), roofline.sharpness
    for place in range(roofline.attention, roofline.attention + roofline.kinds):
        read_s, compute_s = work_s(laws.attention[place], each, fed, rows, context)
        device_s += (read_s**p + compute_s**p) ** (1 / p)
    return float(passes * max(device_s, roofline.host_s))


@compiled
def rows_s(laws: Laws, number: int, tokens: float, context: float, rows: float, row_tokens: float) -> float:
    """Return the time of the rows beyond the first, as `StepTime.rows_s`."""
    if rows == 1:
        return 0.0
    law = laws.laws[number]
    several_s = law.several_s + law.several_per_token_s * tokens
    further_s = (law.per_row_s + law.per_row_context_s * context) * (rows - 1)
    added_s = several_s + further_s + law.per_row_token_s * row_tokens
    if law.roofline >= 0:
        roofline = laws.rooflines[law.roofline]
        alone_s = roofline_s(laws, roofline, tokens, context, 1.0, 0.0)
        added_s += roofline_s(laws, roofline, tokens, context, rows, row_tokens) - alone_s
    return float(added_s)


@compiled
def law_s(laws: Laws, number: int, tokens: float, context: float, rows: float, row_tokens: float) -> float:
    """Return the mean time in seconds, as `StepTime.mean_s`."""
    law = laws.laws[number]
    single_s = law.base_s + law.per_token_s * tokens + law.per_context_token_s * context
    single_s += law.per_token_context_s * tokens * context
    if law.roofline >= 0:
        single_s += roofline_s(laws, laws.rooflines[law.roofline], tokens, context, 1.0, 0.0)
    return float(single_s + rows_s(laws, number, tokens, context, rows, row_tokens))


@compiled
def timed_s(laws: Laws, number: int, slots: Slots, start: int, members: int) -> float:
    """Return the mean time of a step of one kind, as `timed` of `fleet.times.durations`."""
    tokens, context, fed = 0.0, 0.0, 0.0
    for place in range(start, start + members):
        tokens, context = max(tokens, slots.fed[place]), max(context, slots.context[place])
        fed += slots.fed[place]
    further_s = rows_s(laws, number, tokens, context, float(members), fed - tokens)
    law = laws.laws[number]
    if law.roofline >= 0:
        return law_s(laws, number, tokens, context, 1.0, 0.0) + further_s
    single_s = law.base_s + law.per_token_s * tokens
    single_s += (law.per_context_token_s + law.per_token_context_s * tokens) * context
    return float(single_s + further_s)


@compiled
def one_pass_s(laws: Laws, every: int, last: int, slots: Slots, start: int, count: int, logits: int) -> float:
    """Return the time of one pass by rooflines, as `one_pass_s` of `fleet.times.mixed`."""
    every_logit, last_logit = laws.rooflines[laws.laws[every].roofline], laws.rooflines[laws.laws[last].roofline]
    fed, p = 0.0, every_logit.sharpness
    for place in range(start, start + count):
        fed += slots.fed[place]
    device_s = products_s(laws, last_logit, fed)
    if logits > 1:
        device_s += products_s(laws, every_logit, float(logits)) - products_s(laws, last_logit, float(logits))
    for number in range(every_logit.attention, every_logit.attention + every_logit.kinds):
        kind = laws.attention[number]
        read_s, compute_s = 0.0, 0.0
        for place in range(start, start + count):
            reading_s, computing_s = work_s(kind, slots.fed[place], slots.fed[place], 1.0, slots.context[place])
            read_s += reading_s
            compute_s += computing_s
        device_s += (read_s**p + compute_s**p) ** (1 / p)
    return float(max(device_s, every_logit.host_s))


@compiled
def pass_s(laws: Laws, target: Record, slots: Slots) -> float:
    """Return the mean time of a step of several rows, as `pass_s` of `fleet.times.mixed`."""
    start, members, verify = target.start, target.members, target.verify
    if laws.laws[verify].roofline >= 0 and laws.laws[target.prefill].roofline >= 0:
        logits = 0
        for place in range(start, start + members):
            kind = slots.kinds[place]
            logits += slots.tokens[place] + 1 if kind == VERIFY else 0 if kind == CHUNK else 1
        rows_s = laws.laws[verify].per_row_s * (members - 1)
        passed_s = one_pass_s(laws, verify, target.prefill, slots, start, members, logits)
        return float(laws.laws[verify].base_s + rows_s + passed_s)
    total_s, fixed_s, most_s = 0.0, 0.0, 0.0
    others, tokens, context, fed, law = 0, 0.0, 0.0, 0.0, target.decode
    for place in range(start, start + members):
        kind = slots.kinds[place]
        if kind in (PREFILL, CHUNK):
            total_s += law_s(laws, target.prefill, slots.fed[place], slots.context[place], 1.0, 0.0)
            most_s = laws.laws[target.prefill].base_s
            fixed_s += most_s
            continue
        others += 1
        tokens, context = max(tokens, slots.fed[place]), max(context, slots.context[place])
        fed += slots.fed[place]
        if slots.fed[place] > 1:
            law = verify
    if others:
        total_s += law_s(laws, law, tokens, context, float(others), fed - tokens)
        fixed_s += laws.laws[law].base_s
        most_s = max(most_s, laws.laws[law].base_s)
    return total_s - (fixed_s - most_s)


@compiled
def target_step_s(laws: Laws, target: Record, slots: Slots) -> float:
    """Return the mean time of the planned step, and note the source of its ratio: as `verifier_durations`."""
    kind = target.step
    if target.members > 1 and (kind == MIXED or laws.laws[target.verify].roofline >= 0):
        target.source = target.pass_ratios
        return pass_s(laws, target, slots)
    law, target.source = target.prefill, target.prefill_ratios
    if kind == VERIFY:
        law, target.source = target.verify, target.verify_ratios
    elif kind == DECODE:
        law, target.source = target.decode, target.decode_ratios
    return timed_s(laws, law, slots, target.start, target.members)


@compiled
def draft_step_s(laws: Laws, target: Record, streams: Array, slots: Slots) -> float:
    """Return the mean time of a draft on a target's device, as `drafting_s` of `fleet.times.mixed`."""
    start, end, draft, prefill = target.start, target.start + target.members, target.draft, target.draft_prefill
    if laws.laws[draft].roofline < 0 or laws.laws[prefill].roofline < 0:
        prompts_s, rows, tokens, context, fed = 0.0, 0, 0.0, 0.0, 0.0
        for place in range(start, end):
            row, drafted = streams[slots.members[place]], slots.tokens[place]
            more = row.share - drafted - 1
            if more > 0:
                prompts_s += law_s(laws, prefill, float(more), float(row.committed - more), 1.0, 0.0)
            if drafted > 0:
                rows += 1
                tokens, context = max(tokens, float(drafted)), max(context, float(row.committed))
                fed += drafted
        return prompts_s + (law_s(laws, draft, tokens, context, float(rows), fed - tokens) if rows else 0.0)
    passes = 0
    for place in range(start, end):
        row = streams[slots.members[place]]
        slots.fed[place], slots.context[place] = row.share, max(row.committed - row.share, 0)
        passes = max(passes, slots.tokens[place] - 1)
    time_s = laws.laws[draft].base_s + one_pass_s(laws, draft, prefill, slots, start, end - start, end - start)
    for number in range(passes):
        rows = 0
        for place in range(start, end):
            if slots.tokens[place] - 1 > number:
                slots.fed[start + rows] = 1.0
                slots.context[start + rows] = streams[slots.members[place]].committed + number
                rows += 1
        time_s += one_pass_s(laws, draft, prefill, slots, start, rows, rows)
    return float(time_s)


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
def preempt(target: Record, streams: Array, slots: Slots) -> None:
    """Take its KV cache from the row that was admitted last; it waits before all others."""
    target.running -= 1
    stream = slots.running[target.start + target.running]
    row = streams[stream]
    target.free_blocks += row.blocks
    place, end = target.start, target.start + target.works
    while slots.works[place] != stream:
        place += 1
    for later in range(place + 1, end):
        slots.works[later - 1] = slots.works[later]
    target.works -= 1
    row.epoch += row.epoch > 0
    queue(target, streams, stream, True)


@compiled
def admit(target: Record, streams: Array, slots: Slots) -> None:
    """Let the first waiting stream run. Its work keeps its place among all work."""
    stream = target.first
    row = streams[stream]
    target.first = row.behind
    slots.running[target.start + target.running] = stream
    target.running += 1
    place = target.start + target.works
    while place > target.start and streams[slots.works[place - 1]].place > row.place:
        slots.works[place] = slots.works[place - 1]
        place -= 1
    slots.works[place] = stream
    target.works += 1


@compiled
def schedule(target: Record, streams: Array, slots: Slots, limits: Limits) -> None:
    """Set each row's share of the next step, as `ContinuousBatching.schedule`."""
    found, preempted = False, False
    if limits.prefill_first:
        found, preempted = schedule_rows(target, streams, slots, limits, True, False)
    if not found:
        schedule_rows(target, streams, slots, limits, False, preempted)


@compiled
def schedule_rows(
    target: Record, streams: Array, slots: Slots, limits: Limits, prompts_alone: bool, preempted: bool
) -> tuple[bool, bool]:
    """Set the shares of all rows, or of prompts, and return whether there are any, and whether a row was preempted."""
    left, size, place = limits.max_num_batched_tokens, limits.block_size, 0
    while place < target.running:
        row = streams[slots.running[target.start + place]]
        pending = row.committed - row.computed
        tokens = min(pending + row.drafts, left - limits.slots)
        if prompts_alone and pending == 1 and row.computed > 0:
            tokens = 0
        row.share = max(tokens, 0)
        if tokens > 0:
            needed = -(-(row.computed + tokens + (limits.lookahead if row.computed else 0)) // size)
            while needed - row.blocks > target.free_blocks and place < target.running:
                preempt(target, streams, slots)
                preempted = True
            if place == target.running:  # the row itself was preempted
                break
            more = max(needed - row.blocks, 0)
            row.blocks += more
            target.free_blocks -= more
            row.share_drafts = max(tokens - pending, 0)
            left -= tokens + limits.slots
        place += 1
    while not preempted and target.first >= 0 and target.running < limits.max_num_seqs:
        row = streams[target.first]
        tokens = min(row.committed, left - limits.slots)
        if tokens <= 0 or -(-row.committed // size) > target.free_blocks:
            break
        admit(target, streams, slots)
        row.share, row.share_drafts, row.blocks = tokens, 0, -(-tokens // size)
        target.free_blocks -= row.blocks
        left -= tokens + limits.slots
    return left < limits.max_num_batched_tokens, preempted


@compiled
def plan_target_step(target: Record, streams: Array, slots: Slots) -> None:
    """Make the members of a step from the shares, in the order of their work. Only chunks keep their work."""
    start, members, kept = target.start, 0, 0
    for number in range(target.works):
        stream = slots.works[start + number]
        row = streams[stream]
        if row.share > 0:
            place, kind = start + members, row.work
            tokens, fed, context = row.share, row.share, row.committed
            if kind == PREFILL:
                context = row.computed
                if row.share < row.committed - row.computed:
                    kind = CHUNK
            elif kind == VERIFY:
                tokens, fed = row.share_drafts, row.share_drafts + 1
            slots.members[place], slots.kinds[place], slots.tokens[place] = stream, kind, tokens
            slots.fed[place], slots.context[place] = fed, context
            target.step = kind if members == 0 or target.step == kind else MIXED
            members += 1
            if kind != CHUNK:
                continue
        slots.works[start + kept] = stream
        kept += 1
    target.members, target.works = members, kept


@compiled
def plan_draft_step(target: Record, streams: Array, slots: Slots, limits: Limits) -> None:
    """Plan the draft of the members of the step before."""
    target.step, target.follows = target.follows, NO_STEP
    for place in range(target.start, target.start + target.members):
        row = streams[slots.members[place]]
        depth = limits.depth if row.granted else 0
        if limits.positions > 0:
            depth = max(min(depth, limits.positions - row.committed), 0)
        slots.kinds[place], slots.tokens[place] = target.step, depth


@compiled
def log_part(log: StepLog, clock: Record, stream: int, row: Record, kind: int, base: int, tokens: int) -> None:
    """Log a part of a step that starts, or a request that joins."""
    part = log.parts[clock.parts]
    clock.parts += 1
    part.stream, part.request, part.epoch, part.base, part.tokens = stream, row.request, row.epoch, base, tokens
    part.kind, part.accepted, part.round = kind, 0, -1


@compiled
def log_block(log: StepLog, clock: Record, target: Record, here: int, event: int, first: int, parts: int) -> None:
    """Log rows of the event table: those of these parts."""
    block = log.blocks[clock.blocks]
    clock.blocks += 1
    block.time_s, block.begun_s, block.gap_s = clock.now_s, target.begun_s, target.idle_gap_s
    block.duration_s = target.duration_s - target.ending_s
    block.station, block.seq, block.event, block.first, block.parts = here, target.written, event, first, parts
    block.step = 0 if event == JOIN else target.steps_started
    target.written += parts


@compiled
def next_request(requests: Array, streams: Array, slots: Slots, clock: Record, stream: int) -> None:
    """Schedule the arrival of the next request of a stream, if any is left."""
    row = streams[stream]
    if row.request < row.last:
        row.request += 1
        row.arrives_s = clock.now_s + max(0.0, requests[row.request].opens_s - clock.now_s)
        row.order = clock.scheduled
        clock.scheduled += 1
        slots.arrivals[(clock.oldest + clock.arriving) % len(streams)] = stream
        clock.arriving += 1


@compiled
def next_event(streams: Array, slots: Slots, clock: Record) -> int:
    """Return the target of the next event, ARRIVAL, or NOTHING."""
    time_s, order, here = NEVER_S, -1, NOTHING
    if clock.arriving > 0:
        row = streams[slots.arrivals[clock.oldest]]
        time_s, order, here = row.arrives_s, row.order, ARRIVAL
    for number in range(len(slots.due_s)):
        due_s = slots.due_s[number]
        if due_s < time_s or (due_s == time_s and slots.order[number] < order):
            time_s, order, here = due_s, slots.order[number], number
    return here


@compiled
def schedule_event(slots: Slots, clock: Record, here: int, after_s: float) -> None:
    """Schedule the next event of a target."""
    slots.due_s[here], slots.order[here] = clock.now_s + after_s, clock.scheduled
    clock.scheduled += 1


@compiled
def drop_finished(target: Record, streams: Array, slots: Slots) -> None:
    """Remove the rows of complete requests, which have no blocks."""
    left = 0
    for place in range(target.start, target.start + target.running):
        stream = slots.running[place]
        if streams[stream].blocks >= 0:
            slots.running[target.start + left] = stream
            left += 1
    target.running = left


@compiled
def send_results(requests: Array, streams: Array, target: Record, slots: Slots, clock: Record) -> None:
    """Let the streams of complete requests send their next ones."""
    for place in range(target.start, target.start + target.ended):
        next_request(requests, streams, slots, clock, slots.ended[place])
    target.ended = 0


@compiled
def end_target_step(
    requests: Array, streams: Array, target: Record, slots: Slots, limits: Limits, numbers: Numbers,
    clock: Record, log: StepLog,
) -> None:  # fmt: skip
    """Commit the outcomes of a step; plan the draft that follows."""
    start, drafting, kept = target.start, False, 0
    for place in range(start, start + target.members):
        stream, kind = slots.members[place], slots.kinds[place]
        row = streams[stream]
        request = requests[row.request]
        accepted = 0
        if kind == VERIFY:
            accepted = min(numbers.lengths[row.length], row.share_drafts)
            row.length += 1
            part = log.parts[target.logged + place - start]
            part.accepted, part.round = accepted, row.round
        row.computed += row.share - row.share_drafts + accepted
        finished = False
        if kind != CHUNK:
            if row.epoch == 0:
                request.first_s = clock.now_s
            row.committed = min(row.committed + accepted + 1, request.goal)
            row.epoch += 1
            row.drafts, row.work = 0, NO_STEP
            finished = row.committed >= request.goal
            if finished:
                request.last_s = clock.now_s
                target.free_blocks += row.blocks
                row.blocks = -1
                slots.ended[start + target.ended] = stream
                target.ended += 1
            elif limits.drafts:
                row.granted = drafting = True
            else:
                add_work(target, streams, slots, stream, DECODE)
        if not finished and (limits.reads_prompts or kind != CHUNK):
            slots.members[start + kept] = stream
            kept += 1
    target.members = kept
    if limits.drafts and kept:
        target.follows = DRAFTING if drafting else DRAFT_PREFILL
    else:
        send_results(requests, streams, target, slots, clock)
    drop_finished(target, streams, slots)


@compiled
def end_draft_step(
    requests: Array, streams: Array, target: Record, slots: Slots, clock: Record, log: StepLog
) -> None:  # fmt: skip
    """Let drafts wait for their verification, and the results of the step before leave."""
    for place in range(target.start, target.start + target.members):
        stream, tokens = slots.members[place], slots.tokens[place]
        row = streams[stream]
        if target.step == DRAFTING and row.epoch != row.drafted_epoch:  # parts of a prompt may draft again
            log.parts[target.logged + place - target.start].round = row.round = clock.rounds
            row.drafted_epoch = row.epoch
            clock.rounds += 1
        if row.granted:
            row.granted, row.drafts = False, tokens
            add_work(target, streams, slots, stream, VERIFY)
    send_results(requests, streams, target, slots, clock)


@compiled
def run_serving(  # noqa: C901, PLR0912, PLR0915 (one loop, read from top to bottom)
    requests: Array, streams: Array, targets: Array, slots: Slots, limits: Limits, laws: Laws, numbers: Numbers,
    clocks: Array, log: StepLog,
) -> tuple[int, int]:  # fmt: skip
    """Run until the end, or until room in the log or random numbers are missing. Return the reason and its subject."""
    clock = clocks[0]
    room = len(log.parts) - len(slots.running) - 1  # no event logs more parts, nor more than one block
    while True:
        if clock.parts > room or clock.blocks > len(log.blocks) - 2:
            return ROWS, 0
        if clock.begins >= 0:  # a target starts its next step
            here = clock.begins
            target = targets[here]
            if not target.delayed:
                delay_s, source = target.woken_s, target.woken_ratios
                if target.queued:
                    delay_s, source = target.queued_s, target.queued_ratios
                if is_empty(numbers, source):
                    return RATIOS, source
                delay_s *= take(numbers, source)
                target.delayed = True
                if delay_s > 0:
                    clock.begins, target.pausing = -1, True
                    schedule_event(slots, clock, here, delay_s)
                    continue
            if not target.is_planned:
                target.is_planned = True
                if target.follows != NO_STEP:
                    plan_draft_step(target, streams, slots, limits)
                    target.mean_s, target.source = draft_step_s(laws, target, streams, slots), target.draft_ratios
                else:
                    target.idle_gap_s = clock.now_s - target.ended_s
                    schedule(target, streams, slots, limits)
                    plan_target_step(target, streams, slots)
                    target.mean_s = target_step_s(laws, target, slots)
            if is_empty(numbers, target.source):
                return RATIOS, target.source
            if is_empty(numbers, target.after_ratios):
                return RATIOS, target.after_ratios
            clock.begins, target.queued, target.delayed, target.is_planned = -1, False, False, False
            target.steps_started += 1
            target.begun_s = clock.now_s
            target.ending_s = target.after_s * take(numbers, target.after_ratios)
            target.duration_s = target.mean_s * take(numbers, target.source) + target.ending_s
            target.logged = clock.parts
            for place in range(target.start, target.start + target.members):
                stream, kind = slots.members[place], slots.kinds[place]
                row = streams[stream]
                base = row.computed if kind in (PREFILL, CHUNK) else row.committed
                log_part(log, clock, stream, row, kind, base, slots.tokens[place])
            log_block(log, clock, target, here, START, target.logged, target.members)
            schedule_event(slots, clock, here, target.duration_s)
            continue

        here = next_event(streams, slots, clock)
        if here == NOTHING:
            return OVER, 0
        if here == ARRIVAL:
            stream = slots.arrivals[clock.oldest]
            row = streams[stream]
            clock.now_s = row.arrives_s
            clock.oldest = (clock.oldest + 1) % len(streams)
            clock.arriving -= 1
            here, request = row.target, requests[row.request]
            target = targets[here]
            row.epoch, row.committed, row.drafted_epoch, request.joined_s = 0, request.prompt, -1, clock.now_s
            row.length, row.lengths_to = request.lengths_from, request.lengths_to
            log_part(log, clock, stream, row, NO_STEP, 0, request.prompt)
            log_block(log, clock, target, here, JOIN, clock.parts - 1, 1)
            queue(target, streams, stream, False)
            if slots.due_s[here] == NEVER_S:
                clock.begins = here
            continue

        target = targets[here]
        if target.pausing:
            clock.now_s, slots.due_s[here] = slots.due_s[here], NEVER_S
            target.pausing, clock.begins = False, here
            continue
        if target.step not in (DRAFTING, DRAFT_PREFILL):
            for place in range(target.start, target.start + target.members):
                row = streams[slots.members[place]]
                if slots.kinds[place] == VERIFY and row.length == row.lengths_to:
                    return LENGTHS, slots.members[place]
        clock.now_s = target.ended_s = slots.due_s[here]
        slots.due_s[here] = NEVER_S
        log_block(log, clock, target, here, DONE, target.logged, target.members)
        if target.step in (DRAFTING, DRAFT_PREFILL):
            end_draft_step(requests, streams, target, slots, clock, log)
        else:
            end_target_step(requests, streams, target, slots, limits, numbers, clock, log)
        if target.follows != NO_STEP or target.works > 0 or target.first >= 0:
            target.queued, clock.begins = True, here
