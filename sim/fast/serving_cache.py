"""Prefix caches of serving targets: what their blocks hold, and the queue of free ones, as `fleet.policies.blocks`.

A content is a number for the content before it and the source of its tokens; buckets find it by both. It dies with
the last block that holds it, and its number is used again: what comes after it in a text is dead by then, since texts
give their blocks back last one first. Number 0 is none, and the first numbers are those of targets: beginnings of
texts, and ends of queues. A step is planned when it begins, so no change is ever taken back.

Of a cache without limit no content dies. Its queue has only blocks that no text can find.
"""

from specfleet.sim.fast.compiled import compiled, compiled_loop
from specfleet.sim.fast.events import Array, Record
from specfleet.sim.fast.serving_state import Sharing

SPREAD, GOLDEN = 6364136223846793005, -7046029254386353131  # a multiplier of Knuth's, and 2**64 over the golden ratio


@compiled
def bucket_of(buckets: Array, before: int, source: int) -> int:
    """Return the bucket of a content; there are a power of two."""
    return int(((before * SPREAD + source) * GOLDEN >> 20) & (len(buckets) - 1))


@compiled
def content_of(contents: Array, buckets: Array, before: int, source: int) -> int:
    """Return the content that follows another one by a source; 0 if no block holds it."""
    content = buckets[bucket_of(buckets, before, source)]
    while content > 0 and (contents[content].before != before or contents[content].source != source):
        content = contents[content].next
    return int(content)


@compiled
def link(contents: Array, buckets: Array, content: int) -> None:
    """Let a content be found."""
    bucket = bucket_of(buckets, contents[content].before, contents[content].source)
    contents[content].next, buckets[bucket] = buckets[bucket], content


@compiled_loop
def link_all(_code: Array, contents: Array, buckets: Array, to: int, targets: int) -> None:
    """Let all contents be found in new buckets."""
    for content in range(targets, to):
        if contents[content].oldest > 0:
            link(contents, buckets, content)


@compiled
def unlink(contents: Array, buckets: Array, state: Record, content: int) -> None:
    """Let a content die."""
    dead = contents[content]
    bucket = bucket_of(buckets, dead.before, dead.source)
    other = buckets[bucket]
    if other == content:
        buckets[bucket] = dead.next
    else:
        while contents[other].next != content:
            other = contents[other].next
        contents[other].next = dead.next
    dead.next, state.dead = state.dead, content


@compiled
def dequeue(blocks: Array, block: int) -> None:
    """Take a block out of the queue of free ones."""
    before, after = blocks[block].before, blocks[block].after
    blocks[before].after, blocks[after].before = after, before


@compiled
def new_block(sharing: Sharing, target: Record) -> int:
    """Take the first free block: one that was never used, or the head of the queue, which loses its content.

    Those without a content are alike.
    """
    blocks, contents, state = sharing.blocks, sharing.contents, sharing.states[0]
    block = blocks[target.number].after
    if target.unused > 0 and (target.evicts or block == target.number):
        target.unused -= 1
        block, state.blocks = state.blocks, state.blocks + 1
    else:
        dequeue(blocks, block)
        lost = blocks[block]
        if lost.content > 0:
            content = contents[lost.content]
            if lost.older > 0:
                blocks[lost.older].newer = lost.newer
            else:
                content.oldest = lost.newer
            if lost.newer > 0:
                blocks[lost.newer].older = lost.older
            else:
                content.newest = lost.older
            if content.oldest == 0:
                unlink(contents, sharing.buckets, state, lost.content)
            lost.content = lost.older = lost.newer = 0
    blocks[block].users = 1
    return int(block)


@compiled
def hold(sharing: Sharing, block: int, before: int, source: int) -> int:
    """Let a block that has become full be found by its content, which is returned."""
    contents, state = sharing.contents, sharing.states[0]
    content = content_of(contents, sharing.buckets, before, source)
    if content == 0:
        content = state.dead
        if content > 0:
            state.dead = contents[content].next
        else:
            content, state.contents = state.contents, state.contents + 1
        made = contents[content]
        made.before, made.source, made.oldest, made.newest = before, source, block, 0
        link(contents, sharing.buckets, content)
    held, newest = sharing.blocks[block], contents[content].newest
    held.content, held.older = content, newest
    if newest > 0:
        sharing.blocks[newest].newer = block
    contents[content].newest = block
    return int(content)


@compiled
def find(sharing: Sharing, target: Record, request: int, known: int) -> tuple[int, int]:
    """Find the blocks of a text's beginning, all but its last token at most, for the next row that is admitted.

    Return their number, and how many of them are free.
    """
    size = sharing.size
    table, found, free, content = sharing.tables[sharing.spares[sharing.states[0].spares - 1]], 0, 0, target.number
    part, end = sharing.starts[request], sharing.starts[request + 1]
    while (found + 1) * size < known:
        while part < end and sharing.ends[part] < (found + 1) * size:
            part += 1
        source = sharing.sources[part] if part < end else -2 - request
        content = content_of(sharing.contents, sharing.buckets, content, source)
        if content == 0:
            break
        table[found] = sharing.contents[content].oldest
        found += 1
    found = max(found - sharing.again, 0)
    for place in range(found):
        free += sharing.blocks[table[place]].users == 0
    return found, free


@compiled
def begin_text(sharing: Sharing, target: Record, row: Record, found: int) -> None:
    """Let a row that is admitted share the blocks that were found for it."""
    state = sharing.states[0]
    state.spares -= 1
    row.table, row.full, row.computed, row.blocks = sharing.spares[state.spares], found, found * sharing.size, found
    for place in range(found):
        block = sharing.tables[row.table, place]
        shared = sharing.blocks[block]
        if shared.users == 0 and target.evicts:
            dequeue(sharing.blocks, block)
        shared.users += 1


@compiled
def extend_text(sharing: Sharing, target: Record, row: Record, blocks: int, tokens: int) -> None:
    """Let a row have so many blocks, and let the first tokens of its text be found, where they fill blocks."""
    table = sharing.tables[row.table]
    for place in range(row.blocks, blocks):
        table[place] = new_block(sharing, target)
    size = sharing.size
    full = tokens // size
    if full > row.full:
        part, end = sharing.starts[row.request], sharing.starts[row.request + 1]
        content = sharing.blocks[table[row.full - 1]].content if row.full > 0 else target.number
        for place in range(row.full, full):
            while part < end and sharing.ends[part] < (place + 1) * size:
                part += 1
            source = sharing.sources[part] if part < end else -2 - row.request
            content = hold(sharing, table[place], content, source)
        row.full = full


@compiled
def end_text(sharing: Sharing, target: Record, row: Record) -> int:
    """Take a row's blocks, last first; return how many are free now: at the queue's end, or, without content, first."""
    table, blocks, free, state = sharing.tables[row.table], sharing.blocks, 0, sharing.states[0]
    for place in range(row.blocks - 1, -1, -1):
        block = table[place]
        left = blocks[block]
        left.users -= 1
        if left.users == 0:
            free += 1
            if target.evicts or left.content == 0 or left.older > 0:
                left.before, left.after = blocks[target.number].before, target.number
                if left.content == 0:
                    left.before, left.after = target.number, blocks[target.number].after
                blocks[left.before].after = blocks[left.after].before = block
    sharing.spares[state.spares] = row.table
    state.spares += 1
    return free
