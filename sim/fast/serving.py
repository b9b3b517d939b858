"""The compiled loop of serving targets: continuous batching, with or without drafters elsewhere, on arrays.

1. A request joins its target and waits. `schedule` admits it within the limits, as `fleet.policies.continuous` does.
2. A step ends for all of its members at once. Those that go on have work again: they decode, or they draft on the
   target's device and are verified. Times are those of `fleet.times.mixed`, added in the same order.
3. With a drafter elsewhere, a row sends a draft request and has no work until its draft arrives. By `verifiers.late`
   its target goes on without it, waits, or decodes it; then the draft loses the tokens that the text has passed, and
   what is under way may belong to an earlier request. So a row has its state at its drafter, too: `..._there`.
4. A station has at most one pending event, the end of a step or of the delay before it. These and the arrivals of
   messages are in a heap, the arrivals of requests in a ring by time. Of several events at one time, that which was
   scheduled first goes first, as in SimPy.
5. Before a step's ratios are drawn, and before an event that sends messages, the loop checks the blocks of random
   numbers. If one lacks numbers, the loop returns and continues at the next call.

`serving_arrays.py` fills the arrays of the records of `layout.py`.

All code of this loop is in this file: numba's cache does not see changes of functions or constants in other files.
"""

from typing import Any, NamedTuple

from sim.fast.compiled import compiled

Array = Any  # a numpy array of numbers or of records of `layout.py`
Record = Any  # a record of `layout.py`
Numbers = Any  # those of `kernel.py`

# reasons for which the loop returns, events, events of rows, and kinds of steps: as in `kernel.py`
OVER, ROWS, RATIOS, LENGTHS = 0, 1, 2, 3
JOINS, STEP_ENDS, ARRIVES, GOES_ON = 0, 1, 2, 3
JOIN, REQUEST, DRAFT, LEAVE, START, DONE = 0, 1, 2, 3, 4, 5
NO_STEP, PREFILL, DRAFTING, VERIFY, DECODE, CHUNK, DRAFT_PREFILL = 0, 1, 2, 3, 4, 5, 6
MIXED = 7  # several kinds; rows have those of their parts

NOTHING = -1  # in place of an event
LATE = SKIP, DECODE_LATE, WAIT = 0, 1, 2  # values of `verifiers.late`


class Limits(NamedTuple):
    """The rule of `ContinuousBatching`, and how targets or drafters draft.

    - `drafts`, `reads_prompts`: of targets that draft themselves, 0 or 1.
    - `late`: a value of LATE; `group`: most sessions in a step of a drafter elsewhere.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    lookahead: int
    slots: int
    drafts: int
    depth: int
    positions: int
    reads_prompts: int
    late: int
    group: int


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
    """Places of the rows of each target, from `start` on, and what waits for its time.

    - `running`: streams in order of admission, or the group of a drafter; `works`: those with work, in its order;
      `members`: those in the step.
    - `ended`: streams whose requests are complete, until their results leave, after the draft.
    - `kinds`, `tokens`: of the parts of the members; `fed`, `context`: tokens of these in one pass.
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
    arrivals: Array


class Wires(NamedTuple):
    """Directions of links, their mean times, the rings of their messages, and the sizes of these.

    - `draft_bytes`: by tokens; `request_bytes`: by newly committed tokens.
    """

    ways: Array
    links: Array
    messages: Array
    draft_bytes: Array
    request_bytes: Array


class StepLog(NamedTuple):
    """The parts of steps in the order of their starts, and the blocks of rows of the event table in its order."""

    parts: Array
    blocks: Array


@compiled
def push(heap: Array, clock: Record, time_s: float, event: int, subject: int) -> None:
    """Schedule an event."""
    place, order = clock.events, clock.scheduled
    clock.events += 1
    clock.scheduled += 1
    while place > 0:
        above = (place - 1) // 2
        if heap[above].time_s <= time_s:  # earlier scheduling goes first
            break
        heap[place] = heap[above]
        place = above
    new = heap[place]
    new.time_s, new.order, new.event, new.subject = time_s, order, event, subject


@compiled
def pop(heap: Array, clock: Record) -> None:
    """Take the next event off the heap."""
    clock.events -= 1
    size = clock.events
    last = heap[size]
    time_s, order, event, subject = last.time_s, last.order, last.event, last.subject
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size:
            left, right = heap[below], heap[below + 1]
            if right.time_s < left.time_s or (right.time_s == left.time_s and right.order < left.order):
                below += 1
        child = heap[below]
        if time_s < child.time_s or (time_s == child.time_s and order < child.order):
            break
        heap[place] = child
        place = below
    moved = heap[place]
    moved.time_s, moved.order, moved.event, moved.subject = time_s, order, event, subject


@compiled
def lacks(numbers: Numbers, source: int, ratios: int) -> bool:
    """Whether a source has fewer ratios left; -1 is the source of ones."""
    return bool(source >= 0 and numbers.to[source] - numbers.at[source] < ratios)


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
def drop_work(target: Record, slots: Slots, stream: int) -> None:
    """Remove the work of a running row."""
    place, end = target.start, target.start + target.works
    while slots.works[place] != stream:
        place += 1
    for later in range(place + 1, end):
        slots.works[later - 1] = slots.works[later]
    target.works -= 1


@compiled
def preempt(target: Record, streams: Array, slots: Slots) -> None:
    """Take its KV cache from the row that was admitted last; it waits before all others."""
    target.running -= 1
    stream = slots.running[target.start + target.running]
    row = streams[stream]
    target.free_blocks += row.blocks
    drop_work(target, slots, stream)
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
def admits(target: Record, limits: Limits) -> bool:
    """Whether a stream waits for a row, and one is free."""
    return bool(target.first >= 0 and target.running < limits.max_num_seqs)


@compiled
def prefills(target: Record, streams: Array, slots: Slots, limits: Limits) -> bool:
    """Whether a target has a prompt to prefill."""
    for place in range(target.start, target.start + target.works):
        if streams[slots.works[place]].work == PREFILL:
            return True
    return admits(target, limits)


@compiled
def is_ready(station: Record, streams: Array, slots: Slots, limits: Limits) -> bool:
    """Whether a station has a step to start, and none runs."""
    if station.is_busy or station.follows != NO_STEP:
        return not station.is_busy
    if station.is_drafter:
        return bool(station.first >= 0)
    if limits.late == WAIT:
        all_drafted = station.running > 0 and station.works == station.running
        return all_drafted or prefills(station, streams, slots, limits)
    works = station.running if limits.late == DECODE_LATE else station.works
    return works > 0 or admits(station, limits)


@compiled
def schedule(target: Record, streams: Array, slots: Slots, limits: Limits) -> None:
    """Set each row's share of the next step, as `ContinuousBatching.schedule`; `Rows.next_step` says who takes part."""
    left, size, preempted, place = limits.max_num_batched_tokens, limits.block_size, False, 0
    waits = limits.late == WAIT
    only = PREFILL if waits and prefills(target, streams, slots, limits) else VERIFY
    while place < target.running:
        row = streams[slots.running[target.start + place]]
        if (waits and row.work != only) or (row.work == NO_STEP and limits.late != DECODE_LATE):
            row.share = 0
            place += 1
            continue
        pending = row.committed - row.computed
        tokens = min(pending + row.drafts, left - limits.slots)
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
    while not preempted and admits(target, limits) and not (waits and only == VERIFY):
        row = streams[target.first]
        tokens = min(row.committed, left - limits.slots)
        if tokens <= 0 or -(-row.committed // size) > target.free_blocks:
            break
        admit(target, streams, slots)
        row.share, row.share_drafts, row.blocks = tokens, 0, -(-tokens // size)
        target.free_blocks -= row.blocks
        left -= tokens + limits.slots


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


@compiled
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
def plan_group(drafter: Record, streams: Array, slots: Slots, limits: Limits, now_s: float) -> None:
    """Plan the next step of a drafter: the draft of its group, after prefills, or that of the next group."""
    start, follows, drafter.follows = drafter.start, drafter.follows, NO_STEP
    if follows == NO_STEP:
        drafter.idle_gap_s, drafter.running = now_s - drafter.ended_s, 0
        while drafter.first >= 0 and drafter.running < limits.group:
            stream = drafter.first
            row = streams[stream]
            drafter.first, row.waits_there = row.behind_there, False
            slots.running[start + drafter.running] = stream
            drafter.running += 1
            if row.cold:
                drafter.follows = DRAFTING
    drafter.step, drafter.members = DRAFTING if drafter.follows == NO_STEP else PREFILL, 0
    for number in range(start, start + drafter.running):
        stream = slots.running[number]
        row, place = streams[stream], start + drafter.members
        tokens, context = row.base_there - 1, 0
        if drafter.step == DRAFTING:
            tokens, context = limits.depth, row.base_there
            if limits.positions > 0:
                tokens = max(min(tokens, limits.positions - context), 0)
        elif not row.cold:
            continue
        slots.members[place], slots.kinds[place], slots.tokens[place] = stream, drafter.step, tokens
        slots.fed[place], slots.context[place] = tokens, context
        drafter.members += 1


@compiled
def group_step_s(laws: Laws, drafter: Record, slots: Slots) -> float:
    """Return the mean time of the planned step of a drafter, and note the source of its ratio."""
    law, drafter.source = drafter.draft, drafter.draft_ratios
    if drafter.step == PREFILL:
        law, drafter.source = drafter.prefill, drafter.prefill_ratios
    return timed_s(laws, law, slots, drafter.start, drafter.members)


@compiled
def slowdown(laws: Laws, gap_s: float) -> float:
    """Return the slowdown of a draft after an idle gap, interpolated as `fleet.times.effects` does."""
    right, xs, ys = 0, laws.gaps_s, laws.slowdowns
    while right < len(xs) and xs[right] <= gap_s:
        right += 1
    if right == 0:
        return float(ys[0])
    if right == len(xs):
        return float(ys[-1])
    share = (gap_s - xs[right - 1]) / (xs[right] - xs[right - 1])
    return float(ys[right - 1] + share * (ys[right] - ys[right - 1]))


@compiled
def log_part(
    log: StepLog, clock: Record, stream: int, request: int, epoch: int, kind: int, base: int, tokens: int
) -> Record:  # fmt: skip
    """Log a part of a step that starts, a request that joins, or a message that arrives."""
    part = log.parts[clock.parts]
    clock.parts += 1
    part.stream, part.request, part.epoch, part.base, part.tokens = stream, request, epoch, base, tokens
    part.kind, part.accepted, part.round = kind, 0, -1
    return part


@compiled
def log_block(
    log: StepLog, clock: Record, station: Record, here: int, event: int, first: int, parts: int
) -> Record:  # fmt: skip
    """Log rows of the event table: those of these parts."""
    block = log.blocks[clock.blocks]
    clock.blocks += 1
    block.time_s, block.begun_s, block.gap_s = clock.now_s, station.begun_s, station.idle_gap_s
    block.duration_s, block.bytes = station.duration_s - station.ending_s, 0
    block.station, block.seq, block.event, block.first, block.parts = here, station.written, event, first, parts
    block.step = station.steps_started if event in (START, DONE) else 0
    station.written += parts
    return block


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
def next_event(streams: Array, slots: Slots, heap: Array, clock: Record) -> tuple[int, int]:
    """Return the next event and its subject: a stream, a station, or a direction of a link."""
    if clock.arriving > 0:
        stream = slots.arrivals[clock.oldest]
        row, other = streams[stream], heap[0]
        is_first = row.arrives_s < other.time_s or (row.arrives_s == other.time_s and row.order < other.order)
        if clock.events == 0 or is_first:
            return JOINS, stream
    if clock.events == 0:
        return NOTHING, 0
    return heap[0].event, heap[0].subject


@compiled
def missing(
    event: int, subject: int, streams: Array, stations: Array, slots: Slots, wires: Wires, numbers: Numbers
) -> tuple[int, int]:  # fmt: skip
    """Return the kind and subject of random numbers that an event may lack; (OVER, 0) if it lacks none."""
    if event == ARRIVES:  # a late draft may be requested again
        way = wires.ways[subject]
        jitter = wires.ways[streams[wires.messages[way.start + way.oldest].stream].up].jitter
        return (RATIOS, jitter) if lacks(numbers, jitter, 1) else (OVER, 0)
    if event != STEP_ENDS:
        return OVER, 0
    station = stations[subject]
    for place in range(station.start, station.start + station.members):
        row = streams[slots.members[place]]
        if slots.kinds[place] == VERIFY and row.length == row.lengths_to:
            return LENGTHS, slots.members[place]
        if row.drafter >= 0:
            jitter = wires.ways[row.down if station.is_drafter else row.up].jitter
            if lacks(numbers, jitter, station.members):
                return RATIOS, jitter
    return OVER, 0


@compiled
def send(wires: Wires, numbers: Numbers, heap: Array, clock: Record, number: int, size: int) -> Record:
    """Schedule the arrival of a message, after all earlier ones of its direction; return it, to be written."""
    way, now_s = wires.ways[number], clock.now_s
    link = wires.links[way.link]
    way_s = link.latency_s * take(numbers, way.jitter) + size * link.s_per_byte
    message = wires.messages[way.start + (way.oldest + way.count) % way.room]
    way.count += 1
    way.last_s = max(way.last_s, now_s + way_s)
    push(heap, clock, now_s + (way.last_s - now_s), ARRIVES, number)
    message.bytes, message.epoch, message.base, message.tokens, message.round = size, 0, 0, 0, -1
    return message


@compiled
def request_draft(
    requests: Array, streams: Array, wires: Wires, numbers: Numbers, heap: Array, clock: Record, stream: int
) -> None:  # fmt: skip
    """Request a draft of a row from its drafter."""
    row = streams[stream]
    size = requests[row.request].opening_bytes
    if row.epoch > 1:
        size = wires.request_bytes[row.committed - row.requested]
    message = send(wires, numbers, heap, clock, row.up, size)
    message.kind, message.stream, message.request = REQUEST, stream, row.request
    message.epoch, message.base, message.tokens = row.epoch, row.committed, -1
    row.requested = row.committed


@compiled
def drop_drafts(
    requests: Array, streams: Array, target: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array,
    clock: Record, stream: int, tokens: int,
) -> None:  # fmt: skip
    """Drop the first tokens of a late draft, which the text has passed; request another if none is left."""
    row = streams[stream]
    if row.drafts > tokens:
        row.drafts -= tokens
        add_work(target, streams, slots, stream, VERIFY)
        return
    row.drafts, row.passed = 0, 0
    row.epoch += 1
    request_draft(requests, streams, wires, numbers, heap, clock, stream)


@compiled
def receive_draft(
    requests: Array, streams: Array, target: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array,
    clock: Record, message: Record,
) -> None:  # fmt: skip
    """Let a row wait for the verification of its draft, unless its request is complete."""
    stream = message.stream
    row = streams[stream]
    if message.request != row.request or message.epoch != row.epoch:
        return
    row.drafts, row.round = message.tokens, message.round
    if row.passed > 0:
        drop_drafts(requests, streams, target, slots, wires, numbers, heap, clock, stream, row.passed)
    else:
        add_work(target, streams, slots, stream, VERIFY)


@compiled
def receive_request(drafter: Record, streams: Array, clock: Record, message: Record) -> None:
    """Let a session wait for its drafter, behind all others; the first request opens it there."""
    stream = message.stream
    row = streams[stream]
    if message.epoch == 1:
        row.cold, row.tail_there = True, 0
    row.catches_up = row.tail_there > 0 and row.tail_there == message.base - row.base_there - 1
    row.open_there, row.epoch_there, row.base_there = message.request, message.epoch, message.base
    row.tail_there, row.round_there, row.behind_there, row.waits_there = 0, clock.rounds, -1, True
    clock.rounds += 1
    if drafter.first < 0:
        drafter.first = stream
    else:
        streams[drafter.newest].behind_there = stream
    drafter.newest = stream


@compiled
def receive_leave(drafter: Record, streams: Array, slots: Slots, stream: int) -> None:
    """End a session at its drafter. If its draft is late, it may still wait there, or be about to draft."""
    row = streams[stream]
    row.open_there = -1
    if row.waits_there:
        row.waits_there = False
        before, other = -1, drafter.first
        while other != stream:
            before, other = other, streams[other].behind_there
        if before < 0:
            drafter.first = row.behind_there
        else:
            streams[before].behind_there = row.behind_there
        if drafter.newest == stream:
            drafter.newest = before
    if drafter.follows != NO_STEP:
        left = 0
        for place in range(drafter.start, drafter.start + drafter.running):
            if slots.running[place] != stream:
                slots.running[drafter.start + left] = slots.running[place]
                left += 1
        drafter.running = left
        if left == 0:
            drafter.follows = NO_STEP


@compiled
def end_group_step(
    streams: Array, drafter: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array, clock: Record,
    log: StepLog,
) -> None:  # fmt: skip
    """Send the drafts of a step, except for sessions that left while it ran; or note their prefills."""
    for number in range(drafter.members):
        part = log.parts[drafter.logged + number]
        row = streams[part.stream]
        if row.open_there != part.request:
            continue
        if drafter.step == PREFILL:
            row.cold = False
        elif row.epoch_there == part.epoch:
            row.tail_there = part.tokens
            message = send(wires, numbers, heap, clock, row.down, wires.draft_bytes[part.tokens])
            message.kind, message.stream, message.request, message.round = DRAFT, part.stream, part.request, part.round
            message.epoch, message.base, message.tokens = part.epoch, part.base, part.tokens


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
    requests: Array, streams: Array, target: Record, slots: Slots, limits: Limits, wires: Wires, numbers: Numbers,
    heap: Array, clock: Record, log: StepLog,
) -> None:  # fmt: skip
    """Commit the outcomes of a step; request the next drafts, or plan the draft that follows."""
    start, drafting, kept = target.start, False, 0
    for place in range(start, start + target.members):
        stream, kind = slots.members[place], slots.kinds[place]
        row = streams[stream]
        request = requests[row.request]
        accepted = 0
        if kind == VERIFY:  # of a late draft, the text has passed the first tokens
            accepted = max(min(numbers.lengths[row.length], row.share_drafts + row.passed) - row.passed, 0)
            row.length += 1
            part = log.parts[target.logged + place - start]
            part.accepted, part.round = accepted, row.round
        row.computed += row.share - row.share_drafts + accepted
        finished = False
        if kind == DECODE and row.drafter >= 0 and row.committed + 1 < request.goal:  # its draft is late
            row.committed += 1
            row.passed += 1
            if row.drafts > 0:
                drop_work(target, slots, stream)
                row.work = NO_STEP
                drop_drafts(requests, streams, target, slots, wires, numbers, heap, clock, stream, 1)
        elif kind != CHUNK:
            if row.epoch == 0:
                request.first_s = clock.now_s
            row.committed = min(row.committed + accepted + 1, request.goal)
            row.epoch += 1
            finished = row.committed >= request.goal
            if kind == DECODE and row.work == VERIFY:
                drop_work(target, slots, stream)
            row.drafts, row.passed, row.work = 0, 0, NO_STEP
            if finished:
                request.last_s = clock.now_s
                target.free_blocks += row.blocks
                row.blocks = -1
                if row.drafter >= 0 and row.epoch > 1:
                    message = send(wires, numbers, heap, clock, row.up, request.leave_bytes)
                    message.kind, message.stream, message.request = LEAVE, stream, row.request
                if row.drafter >= 0:
                    next_request(requests, streams, slots, clock, stream)
                else:
                    slots.ended[start + target.ended] = stream
                    target.ended += 1
            elif limits.drafts:
                row.granted = drafting = True
            elif row.drafter >= 0:
                request_draft(requests, streams, wires, numbers, heap, clock, stream)
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
    requests: Array, streams: Array, stations: Array, slots: Slots, limits: Limits, laws: Laws, wires: Wires,
    numbers: Numbers, heap: Array, clocks: Array, log: StepLog,
) -> tuple[int, int]:  # fmt: skip
    """Run until the end, or until room in the log or random numbers are missing. Return the reason and its subject."""
    clock = clocks[0]
    room = len(log.parts) - len(slots.running) - 1  # no event logs more parts, nor more than one block
    while True:
        if clock.parts > room or clock.blocks > len(log.blocks) - 2:
            return ROWS, 0
        if clock.begins >= 0:  # a station starts its next step
            here = clock.begins
            station = stations[here]
            if not station.delayed:
                delay_s, source = station.woken_s, station.woken_ratios
                if station.queued:
                    delay_s, source = station.queued_s, station.queued_ratios
                if lacks(numbers, source, 1):
                    return RATIOS, source
                delay_s *= take(numbers, source)
                station.delayed = True
                if delay_s > 0:
                    clock.begins, station.pausing = -1, True
                    push(heap, clock, clock.now_s + delay_s, GOES_ON, here)
                    continue
            if not station.is_planned:
                station.is_planned = True
                if station.is_drafter:
                    plan_group(station, streams, slots, limits, clock.now_s)
                    station.mean_s = group_step_s(laws, station, slots)
                elif station.follows != NO_STEP:
                    plan_draft_step(station, streams, slots, limits)
                    station.mean_s, station.source = draft_step_s(laws, station, streams, slots), station.draft_ratios
                else:
                    station.idle_gap_s = clock.now_s - station.ended_s
                    schedule(station, streams, slots, limits)
                    plan_target_step(station, streams, slots, limits)
                    station.mean_s = target_step_s(laws, station, slots)
            if lacks(numbers, station.source, 1):
                return RATIOS, station.source
            if lacks(numbers, station.after_ratios, 1):
                return RATIOS, station.after_ratios
            clock.begins, station.queued, station.delayed, station.is_planned = -1, False, False, False
            station.steps_started += 1
            station.begun_s, station.is_busy = clock.now_s, True
            station.ending_s = station.after_s * take(numbers, station.after_ratios)
            station.duration_s = station.mean_s * take(numbers, station.source)
            if station.is_drafter and station.step == DRAFTING:
                station.duration_s *= slowdown(laws, station.idle_gap_s)
                if streams[slots.members[station.start]].catches_up:
                    station.duration_s += laws.catch_up_s
            station.duration_s += station.ending_s
            station.logged = clock.parts
            for place in range(station.start, station.start + station.members):
                stream, kind = slots.members[place], slots.kinds[place]
                row = streams[stream]
                if station.is_drafter:
                    base = int(slots.context[place])
                    part = log_part(
                        log, clock, stream, row.open_there, row.epoch_there, kind, base, slots.tokens[place]
                    )
                    part.round = row.round_there
                else:
                    base = row.computed if kind in (PREFILL, CHUNK) else row.committed
                    log_part(log, clock, stream, row.request, row.epoch, kind, base, slots.tokens[place])
            log_block(log, clock, station, here, START, station.logged, station.members)
            push(heap, clock, clock.now_s + station.duration_s, STEP_ENDS, here)
            continue

        event, here = next_event(streams, slots, heap, clock)
        if event == NOTHING:
            return OVER, 0
        need, subject = missing(event, here, streams, stations, slots, wires, numbers)
        if need != OVER:
            return need, subject
        if event == JOINS:
            stream = here
            row = streams[stream]
            clock.now_s = row.arrives_s
            clock.oldest = (clock.oldest + 1) % len(streams)
            clock.arriving -= 1
            here, request = row.target, requests[row.request]
            station = stations[here]
            row.epoch, row.committed, row.drafted_epoch, request.joined_s = 0, request.prompt, -1, clock.now_s
            row.length, row.lengths_to = request.lengths_from, request.lengths_to
            log_part(log, clock, stream, row.request, 0, NO_STEP, 0, request.prompt)
            log_block(log, clock, station, here, JOIN, clock.parts - 1, 1)
            queue(station, streams, stream, False)
        else:
            clock.now_s = heap[0].time_s
            pop(heap, clock)
        if event == ARRIVES:
            way = wires.ways[here]
            here, message = way.station, wires.messages[way.start + way.oldest]
            station = stations[here]
            way.oldest = (way.oldest + 1) % way.room
            way.count -= 1
            part = log_part(
                log, clock, message.stream, message.request, message.epoch, NO_STEP, message.base, message.tokens
            )
            part.round = message.round
            block = log_block(log, clock, station, here, message.kind, clock.parts - 1, 1)
            block.bytes = message.bytes
            if message.kind == DRAFT:
                receive_draft(requests, streams, station, slots, wires, numbers, heap, clock, message)
            elif message.kind == REQUEST:
                receive_request(station, streams, clock, message)
            else:
                receive_leave(station, streams, slots, message.stream)
        station = stations[here]
        if event == GOES_ON:
            station.pausing = False
            if is_ready(station, streams, slots, limits):
                station.delayed, clock.begins = True, here
            continue
        if event == STEP_ENDS:
            station.is_busy, station.ended_s = False, clock.now_s
            log_block(log, clock, station, here, DONE, station.logged, station.members)
            if station.is_drafter:
                end_group_step(streams, station, slots, wires, numbers, heap, clock, log)
            elif station.step in (DRAFTING, DRAFT_PREFILL):
                end_draft_step(requests, streams, station, slots, clock, log)
            else:
                end_target_step(requests, streams, station, slots, limits, wires, numbers, heap, clock, log)
        if not is_ready(station, streams, slots, limits):
            station.queued = station.delayed = False
        elif not station.pausing:
            station.queued, clock.begins = event == STEP_ENDS, here
