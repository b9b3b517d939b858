"""Drafters elsewhere of serving targets: requests for drafts, groups that share a step, and late drafts.

A row has a second state, that at its drafter (`..._there`). The two differ while messages are in flight: a text may go
on before its draft arrives, and its next request may begin before the drafter knows.
"""

from specfleet.sim.fast import events
from specfleet.sim.fast.compiled import compiled_inline
from specfleet.sim.fast.events import Array, Numbers, Record, Wires, send
from specfleet.sim.fast.serving_rows import add_work, drop_work, free_row
from specfleet.sim.fast.serving_state import Limits, Slots, StepLog
from specfleet.sim.fast.sums import Sums, add_return, add_round


@compiled_inline
def request_draft(
    texts: Array, streams: Array, wires: Wires, numbers: Numbers, heap: Array, clock: Record, stream: int
) -> None:  # fmt: skip
    """Request a draft of a row from its drafter."""
    row = streams[stream]
    size = texts[row.request].opening_bytes
    if row.epoch > 1:
        size = wires.request_bytes[row.committed - row.requested]
    message = send(wires, numbers, heap, clock, row.down + 1, size)
    message.kind, message.stream, message.request = events.REQUEST, stream, row.request
    message.epoch, message.base, message.tokens = row.epoch, row.committed, -1
    row.requested, row.unanswered = row.committed, row.epoch


@compiled_inline
def send_leave(
    texts: Array, streams: Array, wires: Wires, numbers: Numbers, heap: Array, clock: Record, stream: int
) -> None:  # fmt: skip
    """Close a complete request at its drafter."""
    row = streams[stream]
    message = send(wires, numbers, heap, clock, row.down + 1, texts[row.request].leave_bytes)
    message.kind, message.stream, message.request = events.LEAVE, stream, row.request
    message.epoch, message.base, message.tokens = 0, 0, 0


@compiled_inline
def drop_drafts(
    texts: Array, streams: Array, target: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array,
    clock: Record, stream: int, tokens: int,
) -> None:  # fmt: skip
    """Drop the first tokens of a late draft, which the text has passed; request another if none is left."""
    row = streams[stream]
    if row.drafts > tokens:
        row.drafts -= tokens
        add_work(target, streams, slots, stream, events.VERIFY)
        return
    row.drafts, row.passed = 0, 0
    row.epoch += 1
    request_draft(texts, streams, wires, numbers, heap, clock, stream)


@compiled_inline
def decode_late(
    texts: Array, streams: Array, target: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array,
    clock: Record, stream: int,
) -> None:  # fmt: skip
    """Commit a token of a row whose draft is late. A draft that came meanwhile, perhaps empty, loses its first
    token."""
    row = streams[stream]
    row.committed += 1
    row.passed += 1
    if row.work == events.VERIFY:
        drop_work(target, slots, stream)
        row.work = events.NO_STEP
        drop_drafts(texts, streams, target, slots, wires, numbers, heap, clock, stream, 1)


@compiled_inline
def receive_draft(
    texts: Array, streams: Array, target: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array,
    clock: Record, message: Record,
) -> None:  # fmt: skip
    """Let a row wait for the verification of its draft, unless its request is complete, or its draft is stale."""
    stream = message.stream
    row = streams[stream]
    if message.request != row.request or message.epoch != row.unanswered:
        return
    row.unanswered = 0
    if message.epoch != row.epoch:  # its cache was lost since the request
        row.passed, row.at_target_s = 0, -1.0
        if row.granted:
            row.granted = False
            request_draft(texts, streams, wires, numbers, heap, clock, stream)
        return
    row.drafts, row.arrived_s, row.at_target_s = message.tokens, clock.now_s, -1.0
    if row.passed > 0:
        drop_drafts(texts, streams, target, slots, wires, numbers, heap, clock, stream, row.passed)
    else:
        add_work(target, streams, slots, stream, events.VERIFY)


@compiled_inline
def receive_request(drafter: Record, streams: Array, clock: Record, message: Record, sums: Sums) -> None:
    """Let a session wait for its drafter, behind all others; the first request opens it there."""
    stream = message.stream
    row = streams[stream]
    if message.epoch == 1:
        row.cold, row.tail_there = True, 0
    elif row.drafted_s >= 0 and message.epoch == row.epoch_there + 1:  # else its target has preempted it
        add_return(sums, row, clock.now_s)
    row.asked_s, row.drafted_s = clock.now_s, -1.0
    row.catches_up = row.tail_there > 0 and row.tail_there == message.base - row.base_there - 1
    row.open_there, row.epoch_there, row.base_there = message.request, message.epoch, message.base
    row.tail_there, row.behind_there, row.waits_there = 0, -1, True
    if drafter.first < 0:
        drafter.first = stream
    else:
        streams[drafter.newest].behind_there = stream
    drafter.newest = stream


@compiled_inline
def receive_leave(drafter: Record, streams: Array, slots: Slots, limits: Limits, clock: Record, stream: int) -> None:
    """End a session at its drafter. If its draft is late, it may still wait there, or be about to draft."""
    row = streams[stream]
    row.open_there = -1
    if limits.streams == 0:
        free_row(streams, clock, stream)
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
    if drafter.follows != events.NO_STEP:
        left = 0
        for place in range(drafter.start, drafter.start + drafter.running):
            if slots.running[place] != stream:
                slots.running[drafter.start + left] = slots.running[place]
                left += 1
        drafter.running = left
        if left == 0:
            drafter.follows = events.NO_STEP


@compiled_inline
def plan_group(drafter: Record, streams: Array, slots: Slots, limits: Limits, now_s: float) -> None:
    """Plan the next step of a drafter: the draft of its group, after prefills, or that of the next group."""
    start, follows, drafter.follows = drafter.start, drafter.follows, events.NO_STEP
    if follows == events.NO_STEP:
        drafter.idle_gap_s, drafter.running = now_s - drafter.ended_s, 0
        while drafter.first >= 0 and drafter.running < limits.group:
            stream = drafter.first
            row = streams[stream]
            drafter.first, row.waits_there, row.wait_s = row.behind_there, False, -1.0
            slots.running[start + drafter.running] = stream
            drafter.running += 1
            if row.cold:
                drafter.follows = events.DRAFTING
    drafter.step, drafter.members = events.DRAFTING if drafter.follows == events.NO_STEP else events.PREFILL, 0
    for number in range(start, start + drafter.running):
        stream = slots.running[number]
        row, place = streams[stream], start + drafter.members
        tokens, context = row.base_there - 1, 0
        if drafter.step == events.DRAFTING:
            tokens, context = limits.depth, row.base_there
            if limits.positions > 0:
                tokens = max(min(tokens, limits.positions - context), 0)
        elif not row.cold:
            continue
        if row.wait_s < 0:  # it is in a step of its group for the first time
            row.wait_s = now_s - row.asked_s
        slots.members[place], slots.kinds[place], slots.tokens[place] = stream, drafter.step, tokens
        slots.fed[place], slots.context[place], slots.waits_s[place] = tokens, context, row.wait_s
        drafter.members += 1


@compiled_inline
def end_group(
    streams: Array, drafter: Record, slots: Slots, wires: Wires, numbers: Numbers, heap: Array, clock: Record,
    log: StepLog, sums: Sums,
) -> None:  # fmt: skip
    """Send the drafts of a step, except for sessions that left while it ran; or note their prefills."""
    for number in range(drafter.members):
        part = log.parts[drafter.logged + number]
        row = streams[part.stream]
        if drafter.step == events.DRAFTING:
            add_round(sums, drafter, clock.now_s, part.tokens, slots.waits_s[drafter.start + number])
        if row.open_there != part.request:
            continue
        if drafter.step == events.PREFILL:
            row.cold = False
        elif row.epoch_there == part.epoch:
            row.tail_there, row.drafted_s = part.tokens, clock.now_s
            message = send(wires, numbers, heap, clock, row.down, wires.draft_bytes[part.tokens])
            message.kind, message.stream, message.request = events.DRAFT, part.stream, part.request
            message.epoch, message.base, message.tokens = part.epoch, part.base, part.tokens
