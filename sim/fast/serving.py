"""The compiled loop of serving targets: continuous batching, with or without drafters elsewhere, on arrays.

1. A request joins its target and waits. `schedule` admits it within the limits, as `fleet.policies.continuous` does.
2. A step ends for all of its members at once. Those that go on have work again: they decode, or they draft on the
   target's device and are verified. Times are those of `fleet.times.mixed`, added in the same order.
3. With a drafter elsewhere, a row requests a draft and has no work until it arrives. By `verifiers.late`, the target's
   steps skip the row meanwhile, wait for it, or decode it. A late draft loses the tokens that the text has passed.
4. A station has at most one pending event, the end of a step or of the delay before it; a leave may withdraw the start,
   and the end of that delay changes nothing. These, the arrivals of messages and the next requests of streams are in a
   heap; arrivals are in order. Of several events at one time, that which was scheduled first goes first, as in SimPy.
5. With `sharing`, a prompt's beginning may be in a prefix cache, and the next turn of a conversation comes some time
   after the last answer. Without it, numba leaves all of this out.
6. Before a step's ratios are drawn, and before an event that sends messages, the loop checks the blocks of random
   numbers. If one lacks numbers, the loop returns and continues at the next call.

`serving_rows.py` has the rows of targets, `serving_ends.py` ends of their steps, `serving_drafters.py` the drafters
elsewhere, `serving_times.py` step times.
`serving_arrays.py` fills the arrays of the records of `layout.py`.
"""

from specfleet.sim.fast import events
from specfleet.sim.fast.compiled import compiled, compiled_inline, compiled_loop
from specfleet.sim.fast.events import Array, Numbers, Record, Wires, lacks, pop, push, receive, take
from specfleet.sim.fast.serving_drafters import end_group, plan_group, receive_draft, receive_leave, receive_request
from specfleet.sim.fast.serving_ends import end_draft_step, end_target_step
from specfleet.sim.fast.serving_rows import goes_on, new_row, next_fits, open_row, plan_draft, prefills, queue, schedule
from specfleet.sim.fast.serving_state import DECODE_LATE, WAIT, Laws, Limits, Sharing, Slots, StepLog
from specfleet.sim.fast.serving_times import draft_s, draft_step_s, group_step_s, target_step_s
from specfleet.sim.fast.sums import DRAFTS, JOINED, OTHERS, PROMPTS, Sums, add_prompt, add_step, row_at

NOTHING = -1  # in place of an event


@compiled_inline
def is_ready(station: Record, texts: Array, streams: Array, slots: Slots, limits: Limits) -> bool:
    """Whether a station has a step to start, and none runs."""
    if station.is_busy or station.follows != events.NO_STEP:
        return not station.is_busy
    if station.is_drafter:
        return bool(station.first >= 0)
    if limits.late == WAIT:
        all_drafted = station.running > 0 and station.works == station.running
        return all_drafted or prefills(station, texts, streams, slots, limits)
    if limits.late == DECODE_LATE and station.running > 0:
        return True
    if station.works > 0:
        return goes_on(station, streams, slots, limits)
    return next_fits(station, texts, streams, limits)


@compiled
def log_part(
    log: StepLog, clock: Record, stream: int, request: int, epoch: int, kind: int, base: int, tokens: int
) -> None:  # fmt: skip
    """Log a part of a step that starts, a request that joins, or a message that arrives."""
    part = log.parts[clock.parts]
    clock.parts += 1
    part.stream, part.request, part.epoch, part.base, part.tokens = stream, request, epoch, base, tokens
    part.kind, part.accepted = kind, 0


@compiled
def log_block(
    log: StepLog, clock: Record, station: Record, here: int, event: int, first: int, parts: int, size: int
) -> None:  # fmt: skip
    """Log rows of the event table: those of these parts; `size`: of a message, in bytes."""
    block = log.blocks[clock.blocks]
    clock.blocks += 1
    block.time_s, block.gap_s = clock.now_s, station.idle_gap_s
    block.duration_s, block.bytes = station.duration_s - station.ending_s, size
    block.station, block.seq, block.event, block.first, block.parts = here, station.written, event, first, parts
    block.step = station.steps_started if event in (events.START, events.DONE) else 0
    station.written += parts


@compiled_inline
def next_event(texts: Array, heap: Array, clock: Record, sharing: Sharing | None) -> tuple[int, int]:
    """Return the next event and its subject: an arrival, a stream, a station, or a direction of a link."""
    if clock.arriving > 0:
        subject = clock.oldest
        if sharing is not None and len(sharing.tags) > 0:
            subject = sharing.firsts[subject]
        if clock.events == 0 or texts[subject].opens_s <= heap[0].time_s:  # arrivals were scheduled before all else
            return events.JOINS, subject
    if clock.events == 0:
        return NOTHING, 0
    return heap[0].event, heap[0].subject


@compiled
def deal(row: Record, numbers: Numbers, stream: int) -> bool:
    """Give a request its first acceptance lengths, if its deck is there."""
    cards, width = numbers.decks.shape[1], numbers.decks.shape[2]
    deck, card = row.request // cards, row.request % cards
    place = deck % len(numbers.dealt)
    if row.drawn > 0 or numbers.dealt[place] != deck:
        return False
    for number in range(width):
        numbers.lengths[stream, number] = numbers.decks[place, card, number]
    row.length, row.lengths_to, row.drawn = 0, width, width
    return True


@compiled_inline
def missing(  # noqa: PLR0911 (one for each reason)
    event: int, subject: int, streams: Array, stations: Array, slots: Slots, limits: Limits, wires: Wires,
    numbers: Numbers,
) -> tuple[int, int]:  # fmt: skip
    """Return the kind and subject of random numbers that an event may lack; (OVER, 0) if it lacks none."""
    if event == events.ARRIVES:  # a late draft may be requested again
        way = wires.ways[subject]
        up = streams[wires.messages[way.start + way.oldest].stream].down + 1
        if wires.ways[up].count == wires.ways[up].room:
            return events.WAYS, up
        jitter = wires.ways[up].jitter
        return (events.RATIOS, jitter) if lacks(numbers, jitter, 1) else (events.OVER, 0)
    if event != events.STEP_ENDS:
        return events.OVER, 0
    station = stations[subject]
    for place in range(station.start, station.start + station.members):
        row = streams[slots.members[place]]
        ends = slots.kinds[place] == events.VERIFY and row.length == row.lengths_to
        if ends and not deal(row, numbers, slots.members[place]):
            return events.LENGTHS, slots.members[place]
        if row.drafter >= 0:
            number = row.down if station.is_drafter else row.down + 1
            way = wires.ways[number]
            if way.count + 2 * min(station.members, limits.max_num_seqs) > way.room:  # a draft request and a leave
                return events.WAYS, number
            if lacks(numbers, way.jitter, station.members):
                return events.RATIOS, way.jitter
    return events.OVER, 0


@compiled_loop
def run_serving(  # noqa: C901, PLR0911, PLR0912, PLR0915 (one loop, read from top to bottom)
    _code: Array, texts: Array, streams: Array, stations: Array, slots: Slots, limits: Limits, laws: Laws,
    wires: Wires, numbers: Numbers, heap: Array, clocks: Array, sums: Sums, sharing: Sharing | None,
    log: StepLog,
) -> tuple[int, int]:  # fmt: skip
    """Run until the end, or until room in the log or random numbers are missing. Return the reason and its subject."""
    clock = clocks[0]
    room = len(log.parts) - len(slots.running) - 1  # no event logs more parts, nor more than one block
    while True:
        if clock.parts > room or clock.blocks > len(log.blocks) - 2:
            return events.ROWS, 0
        if clock.begins >= 0:  # a station starts its next step
            here = clock.begins
            station = stations[here]
            if not station.delayed:
                delay_s, source = station.woken_s, station.woken_ratios
                if station.queued:
                    delay_s, source = station.queued_s, station.queued_ratios
                if lacks(numbers, source, 1):
                    return events.RATIOS, source
                delay_s *= take(numbers, source)
                station.delayed = True
                if delay_s > 0:
                    clock.begins, station.pause = -1, clock.scheduled
                    push(heap, clock, clock.now_s + delay_s, events.GOES_ON, here)
                    continue
            if not station.is_planned:
                station.is_planned = True
                if station.is_drafter:
                    plan_group(station, streams, slots, limits, clock.now_s)
                    station.mean_s = group_step_s(laws, station, slots)
                elif station.follows != events.NO_STEP:
                    plan_draft(station, streams, slots, limits)
                    station.mean_s, station.source = draft_step_s(laws, station, streams, slots), station.draft_ratios
                else:
                    station.idle_gap_s = clock.now_s - station.ended_s
                    places = min(limits.max_num_seqs - station.running, station.fresh)
                    if places > clock.frees:
                        station.is_planned = False
                        return events.PLACES, places
                    if sharing is not None and sharing.states[0].blocks > sharing.states[0].enough:
                        station.is_planned = False
                        return events.BLOCKS, 0
                    schedule(station, texts, streams, slots, limits, clock, sharing)
                    station.mean_s = target_step_s(laws, station, slots)
            if lacks(numbers, station.source, 1):
                return events.RATIOS, station.source
            if lacks(numbers, station.after_ratios, 1):
                return events.RATIOS, station.after_ratios
            clock.begins, station.queued, station.delayed, station.is_planned = -1, False, False, False
            station.steps_started += 1
            station.begun_s, station.is_busy = clock.now_s, True
            station.ending_s = station.after_s * take(numbers, station.after_ratios)
            ratio = take(numbers, station.source)
            duration_s = station.mean_s * ratio
            if station.is_drafter and station.step == events.DRAFTING:
                duration_s = draft_s(laws, station, ratio, streams, slots)
            station.duration_s = duration_s + station.ending_s
            if clock.logs == 0:  # a step without rows has the places of its station
                clock.parts = station.start
            station.logged = clock.parts
            for place in range(station.start, station.start + station.members):
                stream, kind = slots.members[place], slots.kinds[place]
                row = streams[stream]
                if station.is_drafter:
                    base = int(slots.context[place])
                    log_part(log, clock, stream, row.open_there, row.epoch_there, kind, base, slots.tokens[place])
                else:
                    base = row.computed if kind in (events.PREFILL, events.CHUNK) else row.committed
                    if sharing is not None and kind in (events.PREFILL, events.CHUNK) and not row.begun:
                        row.begun = True
                        add_prompt(sums, clock.now_s, texts[row.request].prompt, base)
                    log_part(log, clock, stream, row.request, row.epoch, kind, base, slots.tokens[place])
            if clock.logs == 1:
                log_block(log, clock, station, here, events.START, station.logged, station.members, 0)
            push(heap, clock, clock.now_s + station.duration_s, events.STEP_ENDS, here)
            continue

        event, here = next_event(texts, heap, clock, sharing)
        if event == NOTHING:
            return events.OVER, 0
        need, subject = missing(event, here, streams, stations, slots, limits, wires, numbers)
        if need != events.OVER:
            return need, subject
        if sharing is not None and len(sharing.tags) > 0 and event in (events.JOINS, events.COMES) and clock.frees == 0:
            return events.PLACES, 1
        if event == events.JOINS:
            clock.now_s, clock.oldest, clock.arriving = texts[here].opens_s, clock.oldest + 1, clock.arriving - 1
        else:
            clock.now_s, order = heap[0].time_s, heap[0].order
            pop(heap, clock)
        if event in (events.JOINS, events.COMES):
            if limits.streams > 0:
                row = streams[here]
                number, stream, here = row.request, here, row.target
                open_row(row, number, texts, clock.now_s)
                queue(stations[here], streams, stream, False)
            elif sharing is not None and len(sharing.tags) > 0:
                number, stream = here, new_row(texts, streams, slots, clock, here, sharing.tags[here], clock.now_s)
                here = streams[stream].target
                queue(stations[here], streams, stream, False)
            else:
                number, stream, here = here, -1, here % limits.targets
                texts[number].place = stations[here].works_made
                stations[here].works_made += 1
                stations[here].fresh += 1
            station = stations[here]
            if clock.logs == 1:
                log_part(log, clock, stream, number, 0, events.NO_STEP, 0, texts[number].prompt)
                log_block(log, clock, station, here, events.JOIN, clock.parts - 1, 1, 0)
            sums.totals[row_at(sums.totals, sums.states[0], clock.now_s), JOINED] += 1
        if event == events.ARRIVES:
            here, message = wires.ways[here].station, receive(wires, here)
            station = stations[here]
            if clock.logs == 1:
                request, epoch, base = message.request, message.epoch, message.base
                log_part(log, clock, message.stream, request, epoch, events.NO_STEP, base, message.tokens)
                log_block(log, clock, station, here, message.kind, clock.parts - 1, 1, message.bytes)
            if message.kind == events.DRAFT:
                receive_draft(texts, streams, station, slots, wires, numbers, heap, clock, message)
            elif message.kind == events.REQUEST:
                receive_request(station, streams, clock, message, sums)
            else:
                receive_leave(station, streams, slots, limits, clock, message.stream)
        station = stations[here]
        if event == events.GOES_ON:
            if order == station.pause:  # else a leave has withdrawn the start
                station.pause, clock.begins = -1, here
            continue
        if event == events.STEP_ENDS:
            station.is_busy, station.ended_s = False, clock.now_s
            if clock.logs == 1:
                log_block(log, clock, station, here, events.DONE, station.logged, station.members, 0)
            first = log.parts[station.logged].kind  # a step has the kind of its first part
            work = DRAFTS if station.is_drafter or first == events.DRAFTING else OTHERS
            work = PROMPTS if first == events.DRAFT_PREFILL else work
            add_step(sums, station, here, clock.now_s, work, first == events.VERIFY)
            if station.is_drafter:
                end_group(streams, station, slots, wires, numbers, heap, clock, log, sums)
            elif station.step in (events.DRAFTING, events.DRAFT_PREFILL):
                end_draft_step(texts, streams, station, slots, limits, heap, clock, sums, sharing)
            else:
                end_target_step(texts, streams, station, slots, limits, wires, numbers, heap, clock, log, sums, sharing)
        if not is_ready(station, texts, streams, slots, limits):
            station.queued, station.delayed, station.pause = False, False, -1
        elif station.pause < 0:
            station.queued, clock.begins = event == events.STEP_ENDS, here
