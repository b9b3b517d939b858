"""Rooflines: how long passes through a model take where nobody measured them, by memory, compute and the host."""

import bisect
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

PassTime = Annotated[float, Meta(ge=0, le=1e9)]  # seconds
Tokens = Annotated[int, Meta(ge=1, le=10**9)]


class AttentionTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the attention of all layers of one kind takes: it reads keys and values, and computes on pairs of tokens.

    Keys:
        read_s (s/token): Reading the keys and values of one token of context.
        pair_s (s/token^2): Computing on one pair of a token that is fed and a token that it looks at.
        window (tokens): How many tokens these layers look back; 0 is all of them.
    """

    read_s: PassTime
    pair_s: PassTime
    window: Annotated[int, Meta(ge=0, le=10**9)] = 0

    def work_s(self, each: float, fed: float, rows: float, context: float) -> tuple[float, float]:
        """Return the time of reading and of computing; `each`: tokens of the longest of the rows, `fed`: of all."""
        own = (each + 1) / 2  # a token looks at those that are fed with it up to itself
        known = context
        if self.window:
            own, known = min(own, self.window), _shorter(context, self.window)
        return self.read_s * (rows * known + fed), self.pair_s * fed * (known + own)


class Roofline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of passes through a model that follows from its shape and a device: no step was measured.

    Each operator takes (memory^p + compute^p)^(1/p), which is the longer of both where one of them is much longer. A
    step is one pass over the tokens of all its rows, or, in a draft, a pass for each token of the longest row.

    Keys:
        tokens (tokens): Tokens that a pass feeds, over all rows; rising.
        pass_s: `pass_s[i]` is the time of all but attention in a pass over `tokens[i]`; linear in between, and beyond
            the last as steep as before it.
        attention: What the attention of each kind of layer adds.
        sharpness (factor): `p` of the formula; 1 adds memory and compute, a large one takes the longer.
        host_s: What the host takes to launch a pass; no pass is shorter.
        in_turn: Whether the tokens of a row are made one after the other, a pass each: a draft.
    """

    tokens: Annotated[tuple[Tokens, ...], Meta(min_length=2)]
    pass_s: Annotated[tuple[PassTime, ...], Meta(min_length=2)]
    attention: tuple[AttentionTime, ...] = ()
    sharpness: Annotated[float, Meta(ge=1, le=100)] = 1.5
    host_s: PassTime = 0.0
    in_turn: bool = False

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.tokens, self.tokens[1:], strict=False))
        if len(self.tokens) != len(self.pass_s) or not rising or list(self.pass_s) != sorted(self.pass_s):
            raise ValueError("a roofline needs rising tokens, and for each of them a pass_s that does not fall")

    def mean_s(self, tokens: float, context: float = 0.0, rows: int = 1, row_tokens: float = 0.0) -> float:
        """Mean time in seconds; `tokens` and `context` are the longest row's, `row_tokens` those of all others.

        `context` may be an array, of steps that are alike else.
        """
        if tokens <= 0:
            return 0.0
        fed = tokens + row_tokens
        if self.in_turn:
            return tokens * self._one_pass_s(1.0, fed / tokens, rows, context + (tokens - 1) / 2)
        return self._one_pass_s(tokens, fed, rows, context)

    def _one_pass_s(self, each: float, fed: float, rows: int, context: float) -> float:
        device_s = self._products_s(fed)
        for kind in self.attention:
            read_s, compute_s = kind.work_s(each, fed, rows, context)
            device_s += (read_s**self.sharpness + compute_s**self.sharpness) ** (1 / self.sharpness)
        return _longer(device_s, self.host_s)

    def _products_s(self, fed: float) -> float:
        right = min(max(bisect.bisect_right(self.tokens, fed), 1), len(self.tokens) - 1)
        low, high = self.tokens[right - 1], self.tokens[right]
        share = max(fed - low, 0.0) / (high - low)
        return self.pass_s[right - 1] + share * (self.pass_s[right] - self.pass_s[right - 1])

    def padded_to(self, sizes: Sequence[int]) -> "Roofline":
        """Return the same passes, each filled up to the next of these rising sizes, for which graphs were captured.

        Attention looks at what is there alone; passes beyond the last size stay as they are.
        """
        starts = [1, *(size + 1 for size in sizes[:-1])]
        edges = sorted({edge for pair in zip(starts, sizes, strict=True) for edge in pair})
        padded = {edge: self._products_s(sizes[bisect.bisect_left(sizes, edge)]) for edge in edges}
        beyond = {fed: self._products_s(fed) for fed in (sizes[-1] + 1, *self.tokens) if fed > sizes[-1]}
        pass_s = padded | dict(sorted(beyond.items()))
        return msgspec.structs.replace(self, tokens=tuple(pass_s), pass_s=tuple(pass_s.values()))

    def slowed(self, factor: float) -> "Roofline":
        """Return the same passes, `factor` times slower."""
        return msgspec.structs.replace(
            self,
            pass_s=tuple(factor * time_s for time_s in self.pass_s),
            attention=tuple(
                AttentionTime(factor * kind.read_s, factor * kind.pair_s, kind.window) for kind in self.attention
            ),
            host_s=factor * self.host_s,
        )


def _longer(one: float, other: float) -> float:
    """Return the larger one, entry by entry of an array."""
    return np.maximum(one, other) if isinstance(one, np.ndarray) else max(one, other)


def _shorter(one: float, other: float) -> float:
    """Return the smaller one, entry by entry of an array."""
    return np.minimum(one, other) if isinstance(one, np.ndarray) else min(one, other)
