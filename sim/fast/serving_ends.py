"""Ends of steps of serving targets: what their rows commit, the drafts that follow, and results that leave."""

from specfleet.sim.fast import events
from specfleet.sim.fast.compiled import compiled, compiled_inline
from specfleet.sim.fast.events import Array, Numbers, Record, Wires, push
from specfleet.sim.fast.serving_cache import end_text
from specfleet.sim.fast.serving_drafters import decode_late, request_draft, send_leave
from specfleet.sim.fast.serving_rows import add_work, drop_work, free_row
from specfleet.sim.fast.serving_state import Limits, Sharing, Slots, StepLog
from specfleet.sim.fast.sums import CLOSED, Sums, add_commit, add_request, add_round, add_verified, row_at


@compiled_inline
def next_request(
    texts: Array, streams: Array, limits: Limits, heap: Array, clock: Record, sharing: Sharing | None, stream: int
) -> None:  # fmt: skip
    """Schedule the arrival of the next request of a stream, if any is left."""
    row = streams[stream]
    if row.request + limits.streams < len(texts):
        row.request += limits.streams
        after_s = limits.after_s
        if sharing is not None:
            after_s += max(sharing.thinks_s[row.request], 0.0)
        push(heap, clock, clock.now_s + after_s, events.COMES, stream)
    else:
        clock.first_done_s = min(clock.first_done_s, clock.now_s)


@compiled
def drop_finished(target: Record, streams: Array, slots: Slots, sharing: Sharing | None) -> None:
    """Remove the rows of complete texts; a prefix cache gets their blocks back in order of admission."""
    left = 0
    for place in range(target.start, target.start + target.running):
        stream = slots.running[place]
        row = streams[stream]
        if row.blocks >= 0:
            slots.running[target.start + left] = stream
            left += 1
        elif sharing is not None:
            row.blocks = ~row.blocks
            target.free_blocks += end_text(sharing, target, row)
            row.blocks = -1
    target.running = left


@compiled_inline
def send_results(
    texts: Array, streams: Array, target: Record, slots: Slots, limits: Limits, heap: Array, clock: Record, sums: Sums,
    sharing: Sharing | None,
) -> None:  # fmt: skip
    """Let the results of complete requests leave, and their streams send the next ones."""
    for place in range(target.start, target.start + target.ended):
        stream = slots.ended[place]
        row = streams[stream]
        if row.epoch == 1:
            row.first_s = clock.now_s
        add_request(sums, row, texts[row.request], clock.now_s, limits.streams)
        if limits.streams > 0:
            next_request(texts, streams, limits, heap, clock, sharing, stream)
            continue
        turn = row.request + 1
        if sharing is not None and turn < len(texts) and sharing.thinks_s[turn] >= 0:
            push(heap, clock, clock.now_s + (limits.after_s + sharing.thinks_s[turn]), events.COMES, turn)
        if row.drafter < 0 or row.epoch == 1:  # else its leave frees it
            free_row(streams, clock, stream)
    target.ended = 0


@compiled_inline
def commit(
    row: Record, request: Record, target: Record, accepted: int, clock: Record, sums: Sums, sharing: Sharing | None
) -> bool:  # fmt: skip
    """Commit the tokens of a row, and begin its next epoch; return whether its request is complete."""
    if row.epoch == 0:
        row.first_s = clock.now_s
    tokens = min(accepted + 1, request.goal - row.committed)
    add_commit(sums, clock.now_s, tokens, request.goal - request.prompt)
    row.committed += tokens
    row.epoch += 1
    row.drafts, row.passed, row.work = 0, 0, events.NO_STEP
    if row.committed < request.goal:
        return False
    if sharing is None:
        target.free_blocks += row.blocks
    row.blocks, row.unanswered = ~row.blocks, 0  # until the row is dropped
    sums.totals[row_at(sums.totals, sums.states[0], clock.now_s), CLOSED] += 1
    return True


@compiled_inline
def end_target_step(  # noqa: C901, PLR0912 (calls with many arrays, one for each row, are slow)
    texts: Array, streams: Array, target: Record, slots: Slots, limits: Limits, wires: Wires, numbers: Numbers,
    heap: Array, clock: Record, log: StepLog, sums: Sums, sharing: Sharing | None,
) -> None:  # fmt: skip
    """Commit the outcomes of a step; request the next drafts, or plan the draft that follows."""
    start, drafting, kept, closes = target.start, False, 0, False
    for place in range(start, start + target.members):
        stream, kind = slots.members[place], slots.kinds[place]
        row, accepted, finished = streams[stream], 0, False
        request = texts[row.request]
        if kind == events.VERIFY:  # of a late draft, the text has passed the first tokens
            accepted = max(min(numbers.lengths[stream, row.length], row.share_drafts + row.passed) - row.passed, 0)
            row.length += 1
            log.parts[target.logged + place - start].accepted = accepted
            row.at_target_s = clock.now_s - row.arrived_s
            gained = min(accepted + 1, request.goal - row.committed)
            add_verified(sums, target, clock.now_s, row.share_drafts, accepted, gained)
        row.computed += row.share - row.share_drafts + accepted
        if kind == events.DECODE and row.drafter >= 0 and row.committed + 1 < request.goal:
            add_commit(sums, clock.now_s, 1, request.goal - request.prompt)
            decode_late(texts, streams, target, slots, wires, numbers, heap, clock, stream)
        elif kind != events.CHUNK:
            if kind == events.DECODE and row.work == events.VERIFY:  # the draft came too late
                drop_work(target, slots, stream)
            finished = commit(row, request, target, accepted, clock, sums, sharing)
            if finished:
                closes = True
                if row.drafter >= 0 and row.epoch > 1:
                    send_leave(texts, streams, wires, numbers, heap, clock, stream)
                slots.ended[start + target.ended] = stream
                target.ended += 1
                if not limits.drafts:
                    send_results(texts, streams, target, slots, limits, heap, clock, sums, sharing)
            elif limits.drafts:
                row.granted = drafting = True
            elif row.unanswered > 0:  # a drafter gets one request of a session at a time
                row.granted = True
            elif row.drafter >= 0:
                request_draft(texts, streams, wires, numbers, heap, clock, stream)
            else:
                add_work(target, streams, slots, stream, events.DECODE)
        if not finished and (limits.reads_prompts or kind != events.CHUNK):
            slots.members[start + kept] = stream
            kept += 1
    target.members = kept
    if limits.drafts and kept:
        target.follows = events.DRAFTING if drafting else events.DRAFT_PREFILL
    else:
        send_results(texts, streams, target, slots, limits, heap, clock, sums, sharing)
    if closes:
        drop_finished(target, streams, slots, sharing)


@compiled_inline
def end_draft_step(
    texts: Array, streams: Array, target: Record, slots: Slots, limits: Limits, heap: Array, clock: Record, sums: Sums,
    sharing: Sharing | None,
) -> None:  # fmt: skip
    """Let drafts wait for their verification, and the results of the step before leave."""
    for place in range(target.start, target.start + target.members):
        stream, tokens = slots.members[place], slots.tokens[place]
        row = streams[stream]
        if target.step == events.DRAFTING and row.epoch != row.drafted_epoch:  # parts of a prompt may draft again
            row.drafted_epoch = row.epoch
            add_round(sums, target, clock.now_s, tokens, -1.0)
        if row.granted:
            if row.epoch == 1:
                row.first_s = clock.now_s
            row.granted, row.drafts = False, tokens
            add_work(target, streams, slots, stream, events.VERIFY)
    send_results(texts, streams, target, slots, limits, heap, clock, sums, sharing)
