"""The drafting side of the engine: a draft model for many streams, each with a tag and a cache row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate

import numpy as np
import torch

from specfleet.engine.decoding.cache import WARM_UP, RowCache
from specfleet.engine.decoding.feed import Nodes
from specfleet.engine.decoding.grow import ChildSampling, Drafts, Stops, grow_dynamic, grow_static, no_drafts
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.rules import NEEDS_Q, Rule
from specfleet.engine.decoding.sampling import GREEDY, Sampling, uniforms
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN, Shape

EVEN = 4  # tokens that rows may be fed again, so that all rows have the same shape, for which a graph exists


@dataclass  # (without slots: they keep no cached property)
class Stream:
    """Committed tokens of one decoding stream, prompt included; a drafter's may have tokens that its cache lacks.

    - `drafts`, `row`: of a drafter: its last draft.
    """

    committed: list[int]
    sampling: Sampling
    seed: int
    drafts: Drafts | None = None
    row: int = 0  # of the last drafts

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random generator of its drafts, or of their verification; a greedy drafter's never makes it."""
        return np.random.default_rng(self.seed)


class Rows:
    """The streams of a drafter or of a target, each with a row of its cache."""

    cache: RowCache
    streams: dict[int, Stream]

    def open(self, tag: int, prefix: list[int], sampling: Sampling = GREEDY, seed: int = 0, room: int = 0) -> None:
        """Begin a stream with its prompt, or what is committed; `room`: maximum tokens of its cache.

        ValueError if it is open.
        """
        self.cache.open(tag, room)
        self.streams[tag] = Stream(list(prefix), sampling, seed)

    def release(self, tag: int) -> None:
        """Drop a stream and free its cache."""
        if self.streams.pop(tag, None) is not None:
            self.cache.close(tag)

    def committed(self, tag: int) -> list[int]:
        """Return the stream's committed tokens, prompt included; a drafter's as far as it knows."""
        return self.streams[tag].committed


class Drafter(Rows):
    """A draft model, the shape of its drafts and the rule of their verification.

    - `reads_hidden`: whether it needs the target's hidden states.
    - `state_numbers`: numbers of a token's hidden states.
    - `uncached`: tokens of a text that have no place in the cache.
    """

    reads_hidden = False
    state_numbers = uncached = 0

    def __init__(
        self, model: CausalLM, shape: Shape = CHAIN, rule: Rule = "rejection", cache: RowCache | None = None
    ) -> None:
        if shape.kind == "tree" and max(shape.branching) > model.vocabulary:
            raise InputError(
                f"drafters.shape: {max(shape.branching)} children of a node, and the drafter has a vocabulary of "
                f"{model.vocabulary}; lower branching"
            )
        self.model = model
        self.shape = shape
        self.rule = rule
        self.cache = model.new_cache() if cache is None else cache
        self.device = model.device
        self.streams = {}

    @property
    def name(self) -> str:
        """Its name in errors."""
        return f"EAGLE head beside {self.model.name}" if self.reads_hidden else f"drafter {self.model.name}"

    def forget(self, tag: int, known: int = 0) -> None:
        """Forget a stream's cache; its text has to be read again, behind the `known` tokens of a prefix cache.

        Of a row that was preempted these may include tokens that were verified, and that this drafter has not read.
        """
        stream = self.streams[tag]
        read = min(self.cache.lengths[tag], len(stream.committed) - 1)
        self.cache.lengths[tag], stream.drafts = min(known, read or known), None

    def read(self, tag: int, committed: Sequence[int] = (), hidden: torch.Tensor | None = None) -> None:
        """Compute the cache of all committed tokens but the last, which the draft step feeds.

        - `committed`: the text now, if it goes on.
        - `hidden` (new tokens, states): the target's states, if it reads them, of the tokens between the last one that
          was read and the last one.
        """
        stream = self.streams[tag]
        stream.committed, stream.drafts = list(committed or stream.committed), None
        self._fill(tag, stream.committed, hidden)

    def _fill(self, tag: int, committed: Sequence[int], hidden: torch.Tensor | None) -> None:
        """Feed the tokens that the row of a stream lacks, but not the last one."""
        if lacking := committed[self.cache.lengths[tag] : -1]:
            self.model.prefill(self.cache, tag, self._known(lacking))

    def in_order(self, tags: Sequence[int]) -> list[int]:
        """Return `tags` in the order in which they are cheapest to draft for together."""
        return self.cache.in_order(tags)

    def advance(self, tag: int, path: Sequence[int], tokens: Sequence[int], hidden: torch.Tensor | None = None) -> None:
        """Commit the nodes of `path` in the last draft; `tokens` are theirs, and after them the target's own."""
        stream = self.streams[tag]
        if stream.drafts is not None and path:
            self._keep(tag, stream.drafts, stream.row, path)
        stream.committed += tokens
        stream.drafts = None

    def go_back(self, tag: int, length: int) -> None:
        """Drop all but the first `length` tokens of a stream, also from the cache.

        For drafters that work ahead: they commit their own guesses until a verification corrects them.
        """
        stream = self.streams[tag]
        del stream.committed[length:]
        stream.drafts = None
        self.cache.roll_back(tag, length)

    def _keep(self, tag: int, drafts: Drafts, row: int, path: Sequence[int]) -> None:
        """Keep the cache of an accepted path."""
        self.cache.keep([tag], [drafts.places(row, path)])

    def draft(
        self, tags: Sequence[int], depths: Sequence[int], stops: Stops | None = None, signals: bool = False
    ) -> Drafts:
        """Draft `depths` levels for each of the streams `tags`, at once; see `grow_static`."""
        streams = [self.streams[tag] for tag in tags]
        if not max(depths):
            return no_drafts(len(tags), self.device)
        logits = self._catch_up(tags)  # (B, V)
        rows = [stream.sampling for stream in streams]
        if self.shape.kind == "dynamic":
            drafts = grow_dynamic(self.shape, depths, logits, partial(self._extend, tags))
        else:
            drawing = None
            if self.rule in NEEDS_Q and any(row.temperature for row in rows):
                counts = [self.shape.nodes(depth) for depth in depths]
                generators = [stream.rng for stream in streams]
                chance = uniforms(generators, [range(count) for count in counts], max(counts), self.device)
                drawing = ChildSampling(rows, chance, replace=self.rule == "rejection")
            drafts = grow_static(self.shape, depths, logits, partial(self._extend, tags), drawing, stops, signals)
        drafts = replace(drafts, drafter=self.name)
        for row, stream in enumerate(streams):
            stream.drafts, stream.row = drafts, row
        return drafts

    def warm_up(self, tokens: int) -> None:
        """Run `tokens` draft steps without a result (StarSD, figure 6c)."""
        self.cache.open(WARM_UP)
        nothing = torch.zeros(1, dtype=torch.long, device=self.model.device)
        for _ in range(tokens):
            self.model.logits(self.model.feed(self.cache, [WARM_UP], nothing, [1]))
        self.cache.close(WARM_UP)

    def _catch_up(self, tags: Sequence[int]) -> torch.Tensor:
        """Feed the tokens that caches lack: the target's own, and accepted nodes that were never fed; logits (B, V)."""
        missing = self._missing(tags)
        counts = [len(tokens) for tokens in missing]
        tokens = placed([token for row in missing for token in row], self.device)
        hidden = self.feed(tags, tokens, counts)
        for tag, count in zip(tags, counts, strict=True):
            self.cache.lengths[tag] += count
        return self._logits(pick_last(hidden, counts))

    def _missing(self, tags: Sequence[int]) -> list[list[int]]:
        """Return the tokens that each cache lacks, at least the last committed one; rows that are better fed alike feed
        as many as the row that lacks most, unless one is shorter."""
        ends = [len(self.streams[tag].committed) - self.uncached for tag in tags]
        for tag, length in zip(tags, ends, strict=True):
            self.cache.roll_back(tag, length - 1)
        lacking = [length - self.cache.lengths[tag] for tag, length in zip(tags, ends, strict=True)]
        most, graphed = max(lacking), self.model.graphs is not None and not self.cache.shares
        if most <= min(ends) and (self.cache.uniform or (graphed and most <= EVEN)):
            for tag, length in zip(tags, ends, strict=True):
                self.cache.roll_back(tag, length - most)
            lacking = [most] * len(tags)
        return [self._known(self.streams[tag].committed[-count:]) for tag, count in zip(tags, lacking, strict=True)]

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens as ids of this model; beyond its rows, as of a larger padded embedding, they become the last
        row."""
        last = self.model.vocabulary - 1
        return [min(token, last) for token in tokens]

    def realign(self, tags: Sequence[int]) -> None:
        """Bring rows to a common end, if the cache needs that."""
        self._missing(tags)
        self.cache.realign(tags)

    def _extend(self, tags: Sequence[int], tokens: torch.Tensor, nodes: Nodes) -> torch.Tensor:
        """Feed nodes (B, w) of the draft that grows; return the logits after them (B, w, V)."""
        B, w = tokens.shape
        hidden = self.feed(tags, tokens.clamp(min=0).flatten(), [w] * B, nodes)
        return self._logits(hidden).view(B, w, -1)

    def feed(
        self, tags: Sequence[int], tokens: torch.Tensor, counts: Sequence[int], nodes: Nodes | None = None
    ) -> torch.Tensor:
        """Feed tokens (N,), `counts` of each row, or nodes of the draft that grows; return (N, hidden)."""
        return self.model.feed(self.cache, tags, tokens, counts, nodes)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits (N, V) of hidden states (N, hidden)."""
        return self.model.logits(hidden)


def pick_last(hidden: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """Return the last of each row's hidden states (N, hidden), `counts` of each row in turn: (B, hidden)."""
    if len(counts) == 1:
        return hidden[-1:]
    if max(counts) == 1:
        return hidden
    return hidden.index_select(0, placed([end - 1 for end in accumulate(counts)], hidden.device))
