"""What the compiled loops share: pending events, random numbers, and messages on links.

Events are in a heap by time, then by the order of scheduling. Times round as in SimPy. Python draws random numbers in
blocks: before an event changes any state, a loop checks that no block lacks numbers, and returns if one does. So draws
keep their order.
"""

from typing import Any, NamedTuple

from specfleet.sim.fast.compiled import compiled

Array = Any  # a numpy array of numbers or of records of `layout.py`
Record = Any  # a record of `layout.py`

# reasons for which a loop returns
OVER, ROWS, RATIOS, LENGTHS, PLACES, WAYS, BLOCKS = 0, 1, 2, 3, 4, 5, 6

# events of: an arrival, a station, a direction of a link, a station, the stream of a next request (or turn)
JOINS, STEP_ENDS, ARRIVES, GOES_ON, COMES = 0, 1, 2, 3, 4

# events of rows, and kinds of steps; `table.py` has their names
JOIN, REQUEST, DRAFT, LEAVE, START, DONE = 0, 1, 2, 3, 4, 5
NO_STEP, PREFILL, DRAFTING, VERIFY, DECODE, CHUNK, DRAFT_PREFILL = 0, 1, 2, 3, 4, 5, 6


class Numbers(NamedTuple):
    """Random numbers: `pool[at[s]:to[s]]` are the next ratios of source s; `lengths` are acceptance lengths.

    `decks`: first lengths of requests, so many requests together; `dealt`: the number of the deck at each place.
    """

    pool: Array
    at: Array
    to: Array
    lengths: Array
    decks: Array
    dealt: Array


class Wires(NamedTuple):
    """Directions of links, their mean times, the rings of their messages, and the sizes of these.

    - `draft_bytes`: by tokens; `request_bytes`: by newly committed tokens.
    """

    ways: Array
    links: Array
    messages: Array
    draft_bytes: Array
    request_bytes: Array


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
        left, right = heap[below], heap[min(below + 1, size - 1)]
        # A sum, because a branch would be mispredicted every other time.
        below += (right.time_s < left.time_s) | ((right.time_s == left.time_s) & (right.order < left.order))
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
def interpolated(x: float, xs: Array, ys: Array) -> float:
    """Interpolate as `fleet.times.effects` does."""
    right = 0
    while right < len(xs) and xs[right] <= x:
        right += 1
    if right == 0:
        return float(ys[0])
    if right == len(xs):
        return float(ys[-1])
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return float(ys[right - 1] + share * (ys[right] - ys[right - 1]))


@compiled
def send(wires: Wires, numbers: Numbers, heap: Array, clock: Record, number: int, size: int) -> Record:
    """Schedule the arrival of a message, after all earlier ones of its direction; return its record, to be written."""
    way, now_s = wires.ways[number], clock.now_s
    link = wires.links[way.link]
    way_s = link.latency_s * take(numbers, way.jitter) + size * link.s_per_byte
    message = wires.messages[way.start + (way.oldest + way.count) % way.room]
    message.bytes = size
    way.count += 1
    way.last_s = max(way.last_s, now_s + way_s)
    push(heap, clock, now_s + (way.last_s - now_s), ARRIVES, number)
    return message


@compiled
def receive(wires: Wires, number: int) -> Record:
    """Take the oldest message of a direction; return its record, which the next message sent there may overwrite."""
    way = wires.ways[number]
    message = wires.messages[way.start + way.oldest]
    way.oldest = (way.oldest + 1) % way.room
    way.count -= 1
    return message
