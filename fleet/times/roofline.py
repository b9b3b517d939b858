"""Rooflines: estimated times of passes through a model, from memory, compute and host limits."""

import bisect
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.fleet.times.grid import Grid

PassTime = Annotated[float, Meta(ge=0, le=1e9)]  # seconds
Tokens = Annotated[int, Meta(ge=1, le=10**9)]


class AttentionTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of the attention of all layers of one kind: it reads keys and values, and computes on pairs of tokens.

    - `read_s`: time to read the keys and values of one token of context.
    - `pair_s`: time to compute one pair of a fed token and a token that it attends to.
    - `window`: number of context tokens that these layers attend to; 0 is all of them.
    - `long_from`, `long_pair`, `long_write`: a row that feeds so many tokens or more computes pairs, and writes its
      tokens, in this share of the time; 0 is no row.
    """

    read_s: PassTime
    pair_s: PassTime
    window: Annotated[int, Meta(ge=0, le=10**9)] = 0
    long_from: Annotated[int, Meta(ge=0, le=10**9)] = 0
    long_pair: Annotated[float, Meta(ge=0, le=1)] = 1.0
    long_write: Annotated[float, Meta(ge=0, le=1)] = 1.0

    def work_s(self, longest: float, fed: float, rows: float, context: float) -> tuple[float, float]:
        """Return the time of reading and of computing; `longest`: tokens of the longest row, `fed`: of all rows."""
        itself = (longest + 1) / 2  # a token attends to itself and to earlier fed tokens
        attended = context
        if self.window:
            itself, attended = min(itself, self.window), _shorter(context, self.window)
        if 0 < self.long_from <= longest:
            long_s = self.long_pair * self.pair_s * fed * (attended + itself)
            return self.read_s * (rows * attended + self.long_write * fed), long_s
        return self.read_s * (rows * attended + fed), self.pair_s * fed * (attended + itself)


class Roofline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimated time of passes through a model, from its shape and a device.

    Each operator takes (memory^p + compute^p)^(1/p), which is the longer of both if one of them is much longer. A
    step is one pass over the tokens of all its rows, or, in a draft, a pass for each token of the longest row.

    - `tokens`: tokens of a pass, over all rows; rising.
    - `pass_s[i]`: time without attention of a pass over `tokens[i]`; linear in between, and extrapolated from the last
      two.
    - `attention`: time of attention for each kind of layer.
    - `sharpness`: `p` of the formula; 1 adds memory and compute, a large one takes the longer.
    - `host_s`: host time to launch a pass; no pass is shorter.
    - `in_turn`: whether the tokens of a row need a pass each: a draft.
    - `measured`: attention in place of `attention`: of decoding rows by their number and context, and of a chunk beside
      them by its tokens, those before it, and both; or of a chunk alone.
    """

    tokens: Annotated[tuple[Tokens, ...], Meta(min_length=2)]
    pass_s: Annotated[tuple[PassTime, ...], Meta(min_length=2)]
    attention: tuple[AttentionTime, ...] = ()
    sharpness: Annotated[float, Meta(ge=1, le=100)] = 1.5
    host_s: PassTime = 0.0
    in_turn: bool = False
    measured: Annotated[tuple[Grid, ...], Meta(max_length=2)] = ()

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.tokens, self.tokens[1:], strict=False))
        if len(self.tokens) != len(self.pass_s) or not rising or list(self.pass_s) != sorted(self.pass_s):
            raise ValueError("a roofline needs rising tokens, and for each of them a pass_s that does not fall")

    def mean_s(self, tokens: float, context: float = 0.0, rows: int = 1, row_tokens: float = 0.0) -> float:
        """Return the mean time in seconds; `tokens` and `context` are the longest row's, `row_tokens` those of all
        others.

        `context` may be an array, for steps that are equal otherwise.
        """
        if tokens <= 0:
            return 0.0
        fed = tokens + row_tokens
        if self.in_turn:
            return tokens * self._one_pass_s(1.0, fed / tokens, rows, context + (tokens - 1) / 2)
        return self._one_pass_s(tokens, fed, rows, context)

    def _one_pass_s(self, longest: float, fed: float, rows: int, context: float) -> float:
        device_s = self.products_s(fed)
        for kind in self.attention:
            read_s, compute_s = kind.work_s(longest, fed, rows, context)
            device_s += (read_s**self.sharpness + compute_s**self.sharpness) ** (1 / self.sharpness)
        if len(self.measured) > 1:  # the tokens of a row's draft are computed together, as fast as one
            device_s += self.measured[0].at(rows, context)
        elif self.measured:
            device_s += rows * self.measured[0].at(longest, context)
        return _longer(device_s, self.host_s)

    def products_s(self, fed: float) -> float:
        """Return the time without attention of a pass over so many tokens of all rows."""
        right = min(max(bisect.bisect_right(self.tokens, fed), 1), len(self.tokens) - 1)
        low, high = self.tokens[right - 1], self.tokens[right]
        share = max(fed - low, 0.0) / (high - low)
        return self.pass_s[right - 1] + share * (self.pass_s[right] - self.pass_s[right - 1])

    def in_one_pass(self) -> "Roofline":
        """Return the passes of a chain's drafter as those that draft a block each, by its tokens.

        For each token a pass feeds two positions, as PARD's: what the target fed, and a mask.
        """
        pass_s = tuple(self.products_s(2 * fed) for fed in self.tokens)
        attention = tuple(msgspec.structs.replace(kind, pair_s=2 * kind.pair_s) for kind in self.attention)
        return msgspec.structs.replace(self, pass_s=pass_s, attention=attention, in_turn=False)

    def slowed(self, factor: float) -> "Roofline":
        """Return the same passes, `factor` times slower."""
        return msgspec.structs.replace(
            self,
            pass_s=tuple(factor * time_s for time_s in self.pass_s),
            attention=tuple(
                msgspec.structs.replace(kind, read_s=factor * kind.read_s, pair_s=factor * kind.pair_s)
                for kind in self.attention
            ),
            host_s=factor * self.host_s,
            measured=tuple(msgspec.structs.replace(grid, factor=factor * grid.factor) for grid in self.measured),
        )


def _longer(first: float, second: float) -> float:
    """Return the maximum, element-wise for an array."""
    return np.maximum(first, second) if isinstance(first, np.ndarray) else max(first, second)


def _shorter(first: float, second: float) -> float:
    """Return the minimum, element-wise for an array."""
    return np.minimum(first, second) if isinstance(first, np.ndarray) else min(first, second)
