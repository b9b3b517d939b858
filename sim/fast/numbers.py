"""Random numbers of the compiled loop, with the generators and draws of the SimPy path."""

from collections.abc import Callable, Iterator

import numpy as np

from specfleet.fleet.acceptance.models import DECK, Sampler
from specfleet.fleet.times.durations import ratio_blocks
from specfleet.fleet.times.step_time import Constant, Spread
from specfleet.sim.fast.events import Array, Numbers, Record

ONES = -1  # the source of constant ratios


def child(parent: np.random.Generator, *path: int) -> np.random.Generator:
    """Return the generator at a path of children, by number from 0, that fresh ones spawn, without their siblings."""
    bits = parent.bit_generator
    assert isinstance(bits.seed_seq, np.random.SeedSequence)
    seed = np.random.SeedSequence(bits.seed_seq.entropy, spawn_key=(*bits.seed_seq.spawn_key, *path))
    return np.random.Generator(type(bits)(seed))


class MultiplierSources:
    """Sources of time ratios, drawn in blocks.

    All blocks are in one pool. A source reuses its place until it draws a longer block.
    """

    def __init__(self) -> None:
        self.blocks: list[Iterator[np.ndarray]] = []
        self.places: list[tuple[int, int]] = []  # start and capacity of each source in the pool
        self.pool: Array = np.zeros(0)
        self.used = 0  # of the pool

    def add(self, make: Callable[[], np.random.Generator], *spreads: Spread) -> list[int]:
        """Return the numbers of new sources that share a generator. It is made only if a spread is random."""
        numbers, rng = [], None
        for spread in spreads:
            if isinstance(spread, Constant):
                numbers.append(ONES)
                continue
            rng = rng or make()
            numbers.append(len(self.blocks))
            self.blocks.append(ratio_blocks(spread, rng))
            self.places.append((0, 0))
        return numbers

    def refill(self, source: int, numbers: Numbers) -> Numbers:
        """Draw the next block of a source, behind the ratios that are left; return the updated numbers."""
        block, (start, room) = next(self.blocks[source]), self.places[source]
        if numbers.at[source] < numbers.to[source]:
            block = np.concatenate([numbers.pool[numbers.at[source] : numbers.to[source]], block])
        if len(block) > room:
            start, self.used = self.used, self.used + len(block)
            self.places[source] = start, len(block)
            while self.used > len(self.pool):
                self.pool = np.concatenate([self.pool, np.zeros(max(len(self.pool), 1 << 10))])
        self.pool[start : start + len(block)] = block
        numbers.at[source], numbers.to[source] = start, start + len(block)
        return numbers if numbers.pool is self.pool else numbers._replace(pool=self.pool)


class DealtLengths:
    """Acceptance lengths of open requests, drawn as they need them. They depend on seed and request alone."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.opened: dict[int, tuple[int, Iterator[Array]]] = {}  # request and further lengths, by stream

    def draw(self, numbers: Numbers, stream: int, row: Record) -> None:
        """Draw lengths for the request of a stream that has none left, or the first ones of its deck."""
        request, drawn = int(row["request"]), int(row["drawn"])
        if drawn == 0 and self.sampler.deck is not None:
            number = request // DECK
            place = number % len(numbers.dealt)
            numbers.decks[place], numbers.dealt[place] = self.sampler.deck(number), number
            return
        room = numbers.lengths.shape[1]
        if self.opened.get(stream, (-1, None))[0] != request:
            self.opened[stream] = request, pieces(self.sampler.blocks(request), drawn, room)
        numbers.lengths[stream] = next(self.opened[stream][1])
        row["length"], row["lengths_to"], row["drawn"] = 0, room, drawn + room


def pieces(blocks: Iterator[Array], skipped: int, size: int) -> Iterator[Array]:
    """Yield the values of blocks, after so many that are skipped, in arrays of a size."""
    values = np.zeros(0, dtype=np.int16)
    for block in blocks:
        values = np.append(values, block)
        while len(values) >= skipped + size:
            yield values[skipped : skipped + size]
            values, skipped = values[skipped + size :], 0
