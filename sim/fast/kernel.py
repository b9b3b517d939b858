"""The compiled event loop of a plain star: the behaviour of `sim/network.py` and the stations, on arrays.

1. A stream cycles. Its request joins the target (JOINS), which prefills it and sends a draft request up. The drafter
   prefills a new stream, drafts, and sends the draft down. The target verifies, commits and sends the next request.
2. A stream is at one station at a time, so one record holds its state. Only a leave may be in flight while the next
   request starts; it carries the number of its own request.
3. A station has a queue of streams and at most one running step. Targets come first, then drafters. A station that is
   `pausing` (in the delay before a step) still receives.
4. `events.py` has the heap of events, the random numbers and the messages.
5. The loop writes an event table (a row per event), or a step log (a row per step with the times of its round).

`arrays.py` fills the arrays of the records of `layout.py`.
"""

from typing import NamedTuple

from specfleet.sim.fast.compiled import compiled, compiled_loop
from specfleet.sim.fast.events import (
    DONE,
    DRAFT,
    DRAFTING,
    GOES_ON,
    JOIN,
    JOINS,
    LEAVE,
    LENGTHS,
    NO_STEP,
    OVER,
    PREFILL,
    RATIOS,
    REQUEST,
    ROWS,
    START,
    STEP_ENDS,
    VERIFY,
    Array,
    Numbers,
    Record,
    Wires,
    interpolated,
    lacks,
    pop,
    push,
    receive,
    send,
    take,
)

BEGINS = 4  # an event of a station, at the same time, so never in the heap

# columns of the event table: integers, and times
COLUMNS = (
    "station", "seq", "event", "step", "kind", "tag", "request", "epoch", "base", "tokens", "goal", "accepted", "flag",
    "priority", "payload_bytes",
)  # fmt: skip
STATION, SEQ, EVENT, STEP, KIND, TAG, NUMBER, EPOCH, BASE, TOKENS, GOAL, ACCEPTED, FLAG, PRIORITY, BYTES = range(15)
TIMES = ("time_s", "duration_s", "idle_gap_s")
TIME_S, DURATION_S, IDLE_GAP_S = range(3)

# columns of the step log: of drafts, and of targets' steps (the first three times, the first two integers, and others)
# integers have 32 bits; bytes may exceed them and are among the times. GROUP_BEGUN_S: start of service of the stream
ENDED_S, BEGUN_S, LASTED_S, GROUP_BEGUN_S, REQUESTED_S, GAP_S, ARRIVED_S = range(7)  # times
OF_REQUEST, OF_TOKENS, NEXT_DRAFT, VERIFIED = range(4)
OF_KIND, WAS_ACCEPTED, AT_BASE = 2, 3, 4  # of targets
DRAFT_COLUMNS, COMMIT_COLUMNS = (7, 4), (3, 5)  # times, and integers


class Means(NamedTuple):
    """Mean times. Bases count from `least_base` on."""

    least_base: int
    step_s: Array  # of a draft, verification or decoding step, by times of the station and base
    draft_tokens: Array  # by base
    catch_up_s: float
    gaps_s: Array  # idle gaps, and the slowdowns of drafts after them
    slowdowns: Array


class StepLog(NamedTuple):
    """Times and integers of drafts and of targets' steps, by column and row.

    `prefills` are the times of drafters' prefills. `prefilled` are their requests, and the number of earlier drafts.
    """

    draft_times: Array
    drafts: Array
    commit_times: Array
    commits: Array
    prefills: Array
    prefilled: Array


@compiled
def wait(stations: Array, streams: Array, station: int, stream: int, work: int) -> None:
    """Add a stream to the queue of a station, for a step of kind `work`."""
    waiting, here = streams[stream], stations[station]
    waiting.work, waiting.behind = work, -1
    if here.first < 0:
        here.first = stream
    else:
        streams[here.newest].behind = stream
    here.newest = stream


@compiled
def is_ready(station: Record) -> bool:
    """Whether a station has a step to start, and no running step."""
    return bool((station.program >= 0 or station.first >= 0) and station.running == NO_STEP)


@compiled
def next_request(streams: Array, requests: Array, heap: Array, clock: Record, stream: int) -> None:
    """Schedule the arrival of the next request of a stream, if any is left."""
    one = streams[stream]
    if one.request < one.last:
        one.request += 1
        now_s = clock.now_s
        push(heap, clock, now_s + max(0.0, requests[one.request].opens_s - now_s), JOINS, stream)


@compiled
def missing(
    event: int, subject: int, requests: Array, streams: Array, stations: Array, ways: Array, numbers: Numbers
) -> tuple[int, int]:
    """Return the kind and subject of random numbers that an event lacks; (OVER, 0) if it lacks none."""
    jitter = -1
    if event == STEP_ENDS:
        station = stations[subject]
        kind, stream = station.running, streams[station.stream]
        if kind == VERIFY and stream.length == stream.lengths_to:
            return LENGTHS, station.stream
        sends = kind in (DRAFTING, VERIFY)
        if kind == PREFILL and not station.is_drafter:
            sends = stream.committed + 1 < requests[stream.request].goal
        if sends:
            jitter = ways[stream.down if kind == DRAFTING else stream.up].jitter
    return (RATIOS, jitter) if lacks(numbers, jitter, 1) else (OVER, 0)


@compiled
def write(times: Array, rows: Array, clock: Record, here: int, station: Record, event: int) -> int:
    """Begin a row of the event table; return its place."""
    row = clock.rows
    clock.rows += 1
    times[TIME_S, row] = clock.now_s
    rows[STATION, row], rows[SEQ, row], rows[EVENT, row] = here, station.written, event
    station.written += 1
    return int(row)


@compiled
def log_draft(log: StepLog, clock: Record, station: Record, one: Record, kind: int) -> None:
    """Log a step of a drafter that ends now."""
    if kind == PREFILL:
        prefill = clock.prefills
        clock.prefills += 1
        log.prefills[ENDED_S, prefill], log.prefills[BEGUN_S, prefill] = clock.now_s, station.begun_s
        log.prefilled[0, prefill], log.prefilled[1, prefill] = one.request, clock.drafts
        return
    row = clock.drafts
    clock.drafts += 1
    times, numbers = log.draft_times, log.drafts
    times[ENDED_S, row], times[BEGUN_S, row] = clock.now_s, station.begun_s
    times[LASTED_S, row], times[GROUP_BEGUN_S, row] = station.duration_s - station.ending_s, station.group_begun_s
    times[REQUESTED_S, row], times[GAP_S, row] = one.requested_s, station.idle_gap_s
    numbers[OF_REQUEST, row], numbers[OF_TOKENS, row], numbers[NEXT_DRAFT, row] = one.request, station.tokens, -1
    if one.epoch > 1:  # not the first of its request
        numbers[NEXT_DRAFT, one.draft] = row
    one.draft = row


@compiled
def log_commit(
    log: StepLog, clock: Record, station: Record, one: Record, request: Record, kind: int, accepted: int
) -> None:
    """Log a step of a target that ends now, before it commits."""
    row = clock.commits
    clock.commits += 1
    times, numbers = log.commit_times, log.commits
    times[ENDED_S, row], times[BEGUN_S, row] = clock.now_s, station.begun_s
    times[LASTED_S, row] = station.duration_s - station.ending_s
    numbers[OF_REQUEST, row], numbers[OF_KIND, row], numbers[OF_TOKENS, row] = one.request, kind, station.tokens
    numbers[WAS_ACCEPTED, row], numbers[AT_BASE, row] = accepted, 0 if kind == PREFILL else one.committed
    if kind == PREFILL:
        request.first_s = clock.now_s
    elif kind == VERIFY:
        log.drafts[VERIFIED, one.draft] = row


@compiled
def post(
    wires: Wires, numbers: Numbers, heap: Array, clock: Record,
    number: int, kind: int, stream: int, request: int, size: int,
) -> None:  # fmt: skip
    """Send a message."""
    message = send(wires, numbers, heap, clock, number, size)
    message.kind, message.stream, message.request = kind, stream, request


@compiled_loop
def run_star(  # noqa: C901, PLR0912, PLR0915 (one loop, read from top to bottom)
    _code: Array, requests: Array, streams: Array, stations: Array, wires: Wires, means: Means, numbers: Numbers,
    heap: Array, clocks: Array, times: Array, rows: Array, log: StepLog,
) -> tuple[int, int]:  # fmt: skip
    """Run until the end, or until rows or random numbers are missing. Return the reason and its subject.

    `times` and `rows` are the event table by column (TIMES, COLUMNS) and row, zero at first. If they are empty, the
    loop fills `log` instead.
    """
    clock, ways, recorded = clocks[0], wires.ways, times.shape[1] > 0
    room = times.shape[1] - 2 if recorded else 0  # no event writes more than two rows
    draft_room, commit_room = (0, 0) if recorded else (log.drafts.shape[1] - 1, log.commits.shape[1] - 1)
    if clock.scheduled == 0:
        for stream in range(len(streams)):
            next_request(streams, requests, heap, clock, stream)
    while True:
        if clock.begins >= 0:
            event, here = BEGINS, clock.begins
        else:
            if clock.events == 0:
                return OVER, 0
            event, here = heap[0].event, heap[0].subject
            need, subject = missing(event, here, requests, streams, stations, ways, numbers)
            if need != OVER:
                return need, subject
            if clock.rows > room or clock.drafts > draft_room or clock.commits > commit_room:
                return ROWS, 0
            clock.now_s = heap[0].time_s
            pop(heap, clock)
        now_s = clock.now_s

        if event == BEGINS:  # a station starts its next step
            station = stations[here]
            if not station.delayed:
                mean_s, source = station.woken_s, station.woken_ratios
                if station.queued:
                    mean_s, source = station.queued_s, station.queued_ratios
                if lacks(numbers, source, 1):
                    return RATIOS, source
                delay_s, station.delayed = mean_s * take(numbers, source), True
                if delay_s > 0:
                    clock.begins, station.pausing = -1, True
                    push(heap, clock, now_s + delay_s, GOES_ON, here)
                    continue
            stream = station.program if station.program >= 0 else station.first
            one = streams[stream]
            kind = one.work
            if station.program < 0 and station.is_drafter and one.cold:
                kind = PREFILL
            source = station.prefills if kind == PREFILL else station.steps
            if lacks(numbers, source, 1):
                return RATIOS, source
            if lacks(numbers, station.after_ratios, 1):
                return RATIOS, station.after_ratios
            clock.begins, station.queued, station.delayed = -1, False, False
            if station.program >= 0:
                station.program = -1
            else:
                station.idle_gap_s, station.group_begun_s = now_s - station.ended_s, now_s
                station.first = one.behind
                if station.is_drafter and kind == PREFILL:
                    station.program = stream
            request = requests[one.request]
            if kind == PREFILL:
                base, tokens, mean_s = 0, one.committed, request.prefill_s
                if station.is_drafter:
                    tokens, mean_s = one.committed - 1, request.draft_prefill_s
            else:
                base, tokens, mean_s = one.committed, 1, means.step_s[station.times, one.committed - means.least_base]
                if kind == DRAFTING:
                    tokens = means.draft_tokens[base - means.least_base]
                elif kind == VERIFY:
                    tokens = one.drafted
            duration_s = mean_s * take(numbers, source)
            if kind == DRAFTING:
                duration_s *= interpolated(station.idle_gap_s, means.gaps_s, means.slowdowns)
                if one.drafted > 0 and one.drafted == base - one.drafted_at - 1:  # its last draft was accepted
                    duration_s += means.catch_up_s
            station.ending_s = station.after_s * take(numbers, station.after_ratios)
            duration_s += station.ending_s
            station.steps_started += 1
            station.running, station.stream, station.tokens, station.duration_s = kind, stream, tokens, duration_s
            station.begun_s = now_s
            if recorded:
                row = write(times, rows, clock, here, station, START)
                rows[STEP, row], rows[KIND, row], rows[TAG, row] = station.steps_started, kind, one.tag
                rows[NUMBER, row], rows[EPOCH, row] = request.number, one.epoch
                rows[BASE, row], rows[TOKENS, row], times[IDLE_GAP_S, row] = base, tokens, station.idle_gap_s
            push(heap, clock, now_s + duration_s, STEP_ENDS, here)

        elif event == STEP_ENDS:
            station = stations[here]
            kind, stream, tokens = station.running, station.stream, station.tokens
            one = streams[stream]
            place = one.request
            request = requests[place]
            station.running, station.ended_s = NO_STEP, now_s
            accepted = 0
            if kind == VERIFY:
                accepted = min(numbers.lengths[one.length], tokens)
                one.length += 1
            if recorded:
                row = write(times, rows, clock, here, station, DONE)
                rows[STEP, row], rows[KIND, row], rows[TAG, row] = station.steps_started, kind, one.tag
                rows[NUMBER, row], rows[EPOCH, row] = request.number, one.epoch
                rows[BASE, row], rows[TOKENS, row] = 0 if kind == PREFILL else one.committed, tokens
                rows[ACCEPTED, row], times[DURATION_S, row] = accepted, station.duration_s - station.ending_s
            elif station.is_drafter:
                log_draft(log, clock, station, one, kind)
            else:
                log_commit(log, clock, station, one, request, kind, accepted)

            if kind == DRAFTING:
                one.drafted, one.drafted_at = tokens, one.committed
                post(wires, numbers, heap, clock, one.down, DRAFT, stream, place, wires.draft_bytes[tokens])
            elif station.is_drafter:
                one.cold, one.work = False, DRAFTING
            else:  # the target commits
                one.committed = min(one.committed + accepted + 1, request.goal)
                one.epoch += 1
                finished = one.committed >= request.goal
                if finished:
                    request.last_s = now_s
                if finished and kind == VERIFY:
                    post(wires, numbers, heap, clock, one.up, LEAVE, stream, place, request.leave_bytes)
                elif not finished:
                    size = request.opening_bytes if kind == PREFILL else wires.request_bytes[accepted + 1]
                    post(wires, numbers, heap, clock, one.up, REQUEST, stream, place, size)
                if finished:
                    next_request(streams, requests, heap, clock, stream)
            station.queued = is_ready(station)
            if station.queued:
                clock.begins = here

        elif event == GOES_ON:
            stations[here].pausing, clock.begins = False, here

        else:  # a request joins at its target, or a message arrives
            if event == JOINS:
                stream, kind = here, JOIN
                one = streams[stream]
                here, place, size = one.target, one.request, 0
                request = requests[place]
                one.epoch, one.committed = 0, request.prompt
                one.length, one.lengths_to = request.lengths_from, request.lengths_to
            else:
                message = receive(wires, here)
                kind, stream, place, size = message.kind, message.stream, message.request, message.bytes
                way = ways[here]
                here, one, request = way.station, streams[stream], requests[place]
            station = stations[here]
            if recorded:
                row = write(times, rows, clock, here, station, kind)
                rows[TAG, row], rows[NUMBER, row], rows[BYTES, row] = one.tag, request.number, size
                if kind == JOIN:
                    rows[TOKENS, row], rows[GOAL, row], rows[PRIORITY, row] = request.prompt, request.goal, one.priority
                elif kind == REQUEST:
                    rows[EPOCH, row], rows[BASE, row], rows[TOKENS, row] = one.epoch, one.committed, -1
                    rows[PRIORITY, row], rows[FLAG, row] = one.priority, one.epoch == 1
                elif kind == DRAFT:
                    rows[EPOCH, row], rows[BASE, row], rows[TOKENS, row] = one.epoch, one.committed, one.drafted
            if kind == JOIN:
                request.joined_s = now_s
                wait(stations, streams, here, stream, PREFILL)
            elif kind == REQUEST:
                one.requested_s = now_s
                if one.epoch == 1:  # the first of its request
                    one.cold, one.drafted = True, 0
                wait(stations, streams, here, stream, DRAFTING)
            elif kind == DRAFT:
                if not recorded:
                    log.draft_times[ARRIVED_S, one.draft] = now_s
                wait(stations, streams, here, stream, VERIFY)
            if is_ready(station) and not station.pausing:
                clock.begins = here
