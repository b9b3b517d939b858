"""The blocks of a KV cache: which requests use them, what they hold, and which is taken next.

The rules are those of vLLM's prefix cache (version 1). A full block has a content: the hash of the content before it
and of the source of its tokens. A request that begins with known contents shares their blocks. A block without a user
is free, but keeps its content until it is taken: the queue of free blocks is the order of eviction, and those without a
content come first. A request gives its blocks back last one first, so that the end of a text dies before its beginning.
With blocks of one token this is SGLang's radix tree.

A step is planned before it begins, and perhaps planned anew. Changes therefore go into a journal, and `undo` takes them
back until `keep` is called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

UNLIMITED = 1 << 40
Identity = tuple[int, ...]
"""Pairs of a source and the length of text at which its tokens end. Beyond, a text is its request's own. A source
stands for one text, so it also says what comes before its tokens."""


def source_of(request: int) -> int:
    """Return the source of a request's own tokens: below -1, which Python hashes as -2."""
    return -2 - request


class CountedBlocks:
    """Blocks without contents, of which only the number counts: nothing is ever found."""

    def __init__(self, free: int) -> None:
        self.free = free

    def find(self, tag: int, known: int) -> Sequence[int]:
        """Return the blocks that hold the beginning of a text of so many known tokens."""
        return ()

    def unused(self, blocks: Sequence[int]) -> int:
        """Return how many of these blocks are free."""
        return 0

    def take(self, tag: int, number: int, shared: Sequence[int] = ()) -> None:
        """Give a request these shared blocks, and so many of the free ones."""
        self.free -= number

    def fill(self, tag: int, tokens: int) -> None:
        """Let the first tokens of a request's text be found, where they fill blocks."""

    def give_back(self, tag: int, number: int) -> None:
        """Take all blocks of a request, which has so many."""
        self.free += number


class BlockPool:
    """Numbered blocks, from 1, in a linked queue of free ones.

    An operation on a block takes constant time, but for copies of its content, which it copies. Memory is that of
    blocks that were used: the others stand, unlisted, behind those of the queue that have no content.

    - `limit`: number of blocks; 0 for no limit: then no content ever dies.
    - `users`: number of requests that use each block. `contents`: what each holds; 0 for nothing.
    - `evicted`: contents that were lost so far.
    - `places`: the blocks that hold a content, oldest first.
    - `before`, `after`: neighbours in the queue; the queue begins and ends at place 0.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free = limit or UNLIMITED
        self.users, self.contents, self.before, self.after = [0], [0], [0], [0]
        self.evicted = 0
        self.places: dict[int, tuple[int, ...]] = {}
        self.journal: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def keep(self) -> None:
        """Make all changes final."""
        self.journal.clear()

    def undo(self) -> None:
        """Take back the changes since `keep`, the last one first."""
        while self.journal:
            change, arguments = self.journal.pop()
            change(*arguments)

    def cached(self, contents: Iterable[int]) -> list[int]:
        """Return the blocks that hold the longest known beginning of these contents."""
        blocks: list[int] = []
        for content in contents:
            places = self.places.get(content)
            if places is None:
                break
            blocks.append(places[0])
        return blocks

    def new(self) -> int:
        """Take the block at the head of the queue, which loses its content."""
        block = self.after[0]
        content = self.contents[block]
        if (content or not block) and not 0 < self.limit < len(self.users):
            for values in (self.users, self.contents, self.before, self.after):
                values.append(0)
                self.journal.append((values.pop, ()))
            self._count("free", -(self.limit > 0))
            self.users[-1] = 1
            return len(self.users) - 1
        self._dequeue(block)
        if content:
            self._place(content, tuple([other for other in self.places[content] if other != block]))
            self._set(self.contents, block, 0)
            self._count("evicted", 1)
        self._set(self.users, block, 1)
        return block

    def share(self, block: int) -> None:
        """Add a user to a block with content; a free one leaves the queue."""
        if not self.users[block] and self.limit:
            self._dequeue(block)
        self._set(self.users, block, self.users[block] + 1)

    def leave(self, block: int) -> None:
        """Remove a user from a block; a free one goes to the queue's end with its content, to its head without one."""
        self._set(self.users, block, self.users[block] - 1)
        if not self.users[block] and self.limit:
            neighbours = (self.before[0], 0) if self.contents[block] else (0, self.after[0])
            self._enqueue(block, *neighbours)

    def hold(self, block: int, content: int) -> None:
        """Let a block that has become full be found by its content."""
        self._set(self.contents, block, content)
        self._place(content, (*self.places.get(content, ()), block))

    def _set(self, values: list[int], block: int, value: int) -> None:
        self.journal.append((values.__setitem__, (block, values[block])))
        values[block] = value

    def _count(self, name: str, change: int) -> None:
        before = getattr(self, name)
        self.journal.append((setattr, (self, name, before)))
        setattr(self, name, before + change)

    def _place(self, content: int, blocks: tuple[int, ...]) -> None:
        before = self.places.pop(content, ())
        self.journal.append((self._put, (content, before)))
        self._put(content, blocks)

    def _put(self, content: int, blocks: tuple[int, ...]) -> None:
        self.places[content] = blocks
        if not blocks:
            del self.places[content]

    def _dequeue(self, block: int) -> None:
        before, after = self.before[block], self.after[block]
        self._set(self.after, before, after)
        self._set(self.before, after, before)
        self._count("free", -1)

    def _enqueue(self, block: int, before: int, after: int) -> None:
        for values, place, value in (
            (self.before, block, before), (self.after, block, after), (self.after, before, block),
            (self.before, after, block),
        ):  # fmt: skip
            self._set(values, place, value)
        self._count("free", 1)


class Text:
    """The blocks of a request, the contents of its text so far, and how many blocks can be found by them."""

    def __init__(self, identity: Identity, own: int) -> None:
        self.sources = list(zip(identity[::2], identity[1::2], strict=True))
        self.own = own
        self.part = 0  # of `sources`, in which the next block ends
        self.contents: list[int] = []
        self.blocks: list[int] = []
        self.full = 0

    def chain(self, blocks: int, block_size: int) -> list[int]:
        """Return the contents of the first blocks, perhaps of more: each the hash of the one before and a source."""
        while len(self.contents) < blocks:
            end = (len(self.contents) + 1) * block_size
            while self.part < len(self.sources) and self.sources[self.part][1] < end:
                self.part += 1
            source = self.sources[self.part][0] if self.part < len(self.sources) else self.own
            self.contents.append(hash((self.contents[-1] if self.contents else 0, source)))
        return self.contents


class CachedBlocks(BlockPool, CountedBlocks):
    """Blocks that requests with equal beginnings share.

    - `again`: blocks at the end of what is found that are computed again, beyond the last token: 1 for EAGLE and MTP
      heads, which need the state before it.
    - `identities`: of requests that come without.
    """

    def __init__(
        self, limit: int, block_size: int, again: int = 0, identities: Mapping[int, Identity] | None = None
    ) -> None:
        super().__init__(limit)
        self.identities = identities or {}
        self.block_size = block_size
        self.again = again
        self.texts: dict[int, Text] = {}

    def open(self, tag: int, request: int, identity: Identity | None = None) -> None:
        """Begin a request; what its identity does not name is its own."""
        self.texts[tag] = Text(self.identities.get(request, ()) if identity is None else identity, source_of(request))

    def close(self, tag: int) -> None:
        """End a request: its blocks are free, and keep their contents."""
        self.undo()
        self.give_back(tag, 0)
        del self.texts[tag]
        self.keep()

    def find(self, tag: int, known: int) -> Sequence[int]:
        """Return the blocks that hold the beginning of a text: all but its last token at most, which is computed."""
        most = (known - 1) // self.block_size
        found = self.cached(islice(self.texts[tag].chain(most, self.block_size), most))
        return found[: max(len(found) - self.again, 0)]

    def unused(self, blocks: Sequence[int]) -> int:
        """Return how many of these blocks are free."""
        return sum(not self.users[block] for block in blocks)

    def take(self, tag: int, number: int, shared: Sequence[int] = ()) -> None:
        """Give a request these shared blocks, and then so many from the head of the queue."""
        text = self.texts[tag]
        for block in shared:
            self.share(block)
        if shared:
            self._fill_to(text, len(shared))
        self.journal.append((text.blocks.__delitem__, (slice(len(text.blocks), None),)))
        text.blocks += [*shared, *(self.new() for _ in range(number))]

    def fill(self, tag: int, tokens: int) -> None:
        """Let the first tokens of a request's text be found, where they fill blocks."""
        text, full = self.texts[tag], tokens // self.block_size
        if full > text.full:
            contents = text.chain(full, self.block_size)
            for place in range(text.full, full):
                self.hold(text.blocks[place], contents[place])
            self._fill_to(text, full)

    def hold_text(self, tag: int, known: int, room: int) -> int:
        """Give a request the blocks of so much room, as far as there are some, for a step on all of its known tokens.

        Return how many of these are found: none if it had blocks before.
        """
        text = self.texts[tag]
        found = () if text.blocks else self.find(tag, known)
        missing = -(-room // self.block_size) - len(text.blocks) - len(found)
        self.take(tag, min(max(missing, 0), self.free - self.unused(found)), found)
        self.fill(tag, min(known, len(text.blocks) * self.block_size))
        self.keep()
        return len(found) * self.block_size

    def give_back(self, tag: int, number: int) -> None:
        """Take all blocks of a request, the last one first."""
        text = self.texts[tag]
        for block in reversed(text.blocks):
            self.leave(block)
        self.journal.append((setattr, (text, "blocks", text.blocks)))
        text.blocks = []
        self._fill_to(text, 0)

    def _fill_to(self, text: Text, full: int) -> None:
        self.journal.append((setattr, (text, "full", text.full)))
        text.full = full
