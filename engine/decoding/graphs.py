"""CUDA graphs: the host launches a forward pass of a repeated shape as one piece.

A small model's step is mostly launches: some hundred kernels, each sent by Python. A captured graph sends them all at
once, over fixed addresses. Tokens, slots, positions and a tree's mask are copied into buffers that stay. The width is
padded to a bucket, and the mask hides the padding. A chain's mask follows from its positions and is made inside, and so
do the lengths of rows where attention reads pages. Results are equal in exact arithmetic; in half precision another
width or mask may choose another attention kernel, so ties may fall differently.

Bounds: a shape is captured at its second pass over a storage, if the pass has at most `MAX_TOKENS` tokens and is no
prefill. A node rehearses the usual shapes before its run, and captures no others of that storage. A model has at most
`MAX_GRAPHS`. With as many, and if a device has no memory for another one, other shapes are eager.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from weakref import WeakSet

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from specfleet.engine.decoding.cache import RowCache
from specfleet.engine.decoding.feed import Feed
from specfleet.engine.decoding.slots import SlotCache

MAX_TOKENS = 256  # of a pass: with more, the kernels take longer than their launches
LONGEST_CHAIN = 32  # of one row alone: a longer one is part of a prompt, and prompt lengths rarely repeat
MAX_GRAPHS = 512  # all share one pool of memory, as large as the largest needs; each has its own launches and buffers
SIGHTS = 2  # passes of a shape; the last one captures it
NARROWEST = 128  # places of the smallest bucket: attention over them takes less than a launch

Pass = Callable[..., torch.Tensor]
"""The forward pass over a cache of N tokens (N,), their feed, and states (N, hidden) if there are any: (N, hidden)."""
Work = Callable[[], torch.Tensor]
Capture = Callable[[Work], Work]
"""Turns work on fixed tensors into a function that repeats it; the result keeps its place."""


class Form(NamedTuple):
    """Properties that passes of one graph share: first row, rows, tokens a row, places that are read, and a mask."""

    first: int
    rows: int
    tokens: int
    width: int
    is_chain: bool


@dataclass(slots=True)
class _Graph:
    """A captured pass and its buffers: a graph uses addresses, so its buffers live as long as the graph.

    - `inputs` (3, N): tokens, slots and positions.
    - `places` (bucket,): 0, 1, ...
    - `mask` (B, T, bucket): of a tree, None of a chain.
    - `states`: hidden states beside the tokens, (N, hidden) each; none for a plain model.
    """

    inputs: torch.Tensor
    places: torch.Tensor
    mask: torch.Tensor | None
    states: list[torch.Tensor]
    replay: Work | None = None

    def fill(self, tokens: torch.Tensor, feed: Feed, states: Sequence[torch.Tensor]) -> None:
        """Copy the inputs of the next replay."""
        for buffer, values in zip(self.states, states, strict=True):
            buffer.copy_(values)
        torch.stack((tokens, feed.slots, feed.positions), out=self.inputs)
        if self.mask is not None and feed.mask is not None:
            self.mask[..., : feed.width].copy_(feed.mask)
            self.mask[..., feed.width :].fill_(False)

    def feed(self, rows: slice, pages: bool) -> Feed:
        """Return the feed of the buffers, up to the end of the bucket; attention over `pages` leaves out the rest."""
        feed = Feed(rows, self.inputs[1], self.inputs[2], self.places, self.mask)
        return replace(feed, mask=feed.up_to_itself()) if self.mask is None and not pages else feed


@dataclass(slots=True)
class _Storage:
    """Graphs of one storage, and passes by form."""

    graphs: dict[Form, _Graph] = field(default_factory=dict)
    sights: Counter[Form] = field(default_factory=Counter)
    full: bool = False  # no further ones: those of a run are there, or the device had no memory for a capture


class Graphs:
    """The graphs of one model's forward pass. They live as long as their storage; a new storage starts without graphs.

    `capture`: shared by the passes of one thread, whose graphs then share their memory.
    """

    def __init__(self, capture: Capture | None = None) -> None:
        self.capture = CudaCapture() if capture is None else capture
        self.storages = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        """The number of graphs."""
        return sum(len(stored.graphs) for stored in self.storages.values())

    def close(self, cache: RowCache) -> None:
        """Capture no further graphs of a storage."""
        self.storages.setdefault(cache.storage, _Storage()).full = True

    def run(self, work: Pass, cache: RowCache, tokens: torch.Tensor, feed: Feed, *states: torch.Tensor) -> torch.Tensor:
        """Run the pass `work` (N, hidden), with a graph if there is one or if it is time for one."""
        form = read_form(cache, feed)
        if form is None:
            return work(cache, tokens, feed, *states)
        stored = self.storages.setdefault(cache.storage, _Storage())
        graph = stored.graphs.get(form)
        if graph is None:
            stored.sights[form] += 1
            if stored.full or stored.sights[form] < SIGHTS or len(self) >= MAX_GRAPHS:
                return work(cache, tokens, feed, *states)
            graph = stored.graphs[form] = make_graph(form, tokens.device, states)
        graph.fill(tokens, feed, states)
        if graph.replay is None:  # only now: a capture runs the pass, and the buffers decide where it writes
            try:
                graph.replay = self.capture(
                    lambda: work(cache, graph.inputs[0], graph.feed(feed.rows, cache.pages), *graph.states)
                )
            except RuntimeError as error:  # a capture has memory of its own, which an eager pass shares
                if "out of memory" not in str(error):  # torch's own error, or CUDA's
                    raise
                stored.full = True
                del stored.graphs[form]
                return work(cache, tokens, feed, *states)
        return graph.replay().clone()  # all graphs share their memory: the next one may overwrite this


def read_form(cache: RowCache, feed: Feed) -> Form | None:
    """Return the form of a pass; None for one that is never captured.

    Ragged rows rarely repeat a shape, aligned ones move to new storage often, and prompts have any length.
    """
    tokens, is_chain = len(feed.slots), feed.mask is None
    most = LONGEST_CHAIN if is_chain and feed.batch == 1 else MAX_TOKENS
    if feed.gather is not None or tokens > most or not isinstance(cache, SlotCache):
        return None
    width = min(bucket(feed.width), cache.tokens_allocated)
    return Form(feed.rows.start, feed.batch, tokens // feed.batch, width, is_chain)


def bucket(width: int) -> int:
    """Return the next wider bucket: multiples of 128 up to 1,024, then four for every power of two."""
    step = max(NARROWEST, 1 << (width - 1).bit_length() >> 3)
    return -(-width // step) * step


def make_graph(form: Form, device: torch.device, states: Sequence[torch.Tensor]) -> _Graph:
    """Return the buffers for a pass of that form; it is not captured yet."""
    inputs = torch.zeros(3, form.rows * form.tokens, dtype=torch.long, device=device)
    mask = None if form.is_chain else torch.zeros(*form[1:4], dtype=torch.bool, device=device)
    return _Graph(inputs, torch.arange(form.width, device=device), mask, [torch.empty_like(state) for state in states])


class CudaCapture:
    """Captures work as CUDA graphs that share one memory pool: only one of them runs at a time.

    They share a stream, too, and torch frees what cuBLAS uses on it with any of them (issue 193402 of pytorch). So all
    graphs, also one that failed, stay until none is in use.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.replays: WeakSet[Work] = WeakSet()  # of those in use

    def __call__(self, work: Work) -> Work:
        """Run `work` once on a side stream, so that libraries are initialised; then capture it there.

        The context `torch.cuda.graph` is not used: it waits for the device and frees the allocator's memory each time.
        """
        if not self.replays:
            self.graphs.clear()
            self.pool = torch.cuda.graph_pool_handle()  # torch refuses one after its last graph is gone
        graph = torch.cuda.CUDAGraph()
        self.graphs.append(graph)
        self.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.stream):
                work()
                graph.capture_begin(self.pool, "thread_local")  # other threads of the process may go on allocating
                try:
                    output = work()
                finally:
                    graph.capture_end()
        finally:  # without memory, too: the pass is run again, on the same cache
            torch.cuda.current_stream().wait_stream(self.stream)

        def replay() -> torch.Tensor:
            graph.replay()
            return output

        self.replays.add(replay)
        return replay
