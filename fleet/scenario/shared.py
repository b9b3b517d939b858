"""What the texts of a workload share: beginnings of prompts, and conversations."""

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specfleet.fleet.scenario.lengths import LEVELS, Between

Ints = NDArray[np.int64]
Turns = Annotated[int, Meta(ge=1, le=10**4)]


class SharedPrompts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each prompt begins with one of a few texts, such as a system prompt.

    Keys:
        tokens (tokens): Length of each of these texts. A prompt's own tokens come after it.
        share (share): In place of `tokens`, the part of each prompt that is the beginning of such a text, in whole
            blocks of the cache. Prompts keep their lengths.
        groups (texts): Number of texts.
        zipf (factor): How unlike their popularity is: the k-th text is drawn in proportion to k^-zipf. 0: all alike.
    """

    tokens: Annotated[int, Meta(ge=0, le=10**7)] = 0
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    groups: Annotated[int, Meta(ge=1, le=10**6)] = 1
    zipf: Annotated[float, Meta(ge=0, le=10)] = 0.0

    def __post_init__(self) -> None:
        if bool(self.tokens) == bool(self.share):
            raise ValueError("needs either tokens or share above 0")

    def beginning(self, prompt: float) -> float:
        """Return the tokens of a prompt that are the beginning of such a text."""
        return self.tokens or self.share * prompt

    def drawn(self, uniforms: NDArray[np.float64]) -> Ints:
        """Return the number of a text, from 0, for each uniform number."""
        ends = np.cumsum(np.arange(1.0, self.groups + 1) ** -self.zipf)
        drawn: Ints = np.minimum(np.searchsorted(ends, uniforms * ends[-1], side="right"), self.groups - 1)
        return drawn

    def distinct(self, requests: float) -> float:
        """Return how many of these texts so many prompts begin with, on average."""
        shares = np.arange(1.0, self.groups + 1) ** -self.zipf
        return float((1 - (1 - shares / shares.sum()) ** requests).sum())


class Conversations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Users that send their next turn some time after the last answer.

    Keys:
        turns (turns): Turns of a conversation: a number, or a table with `low` and `high`.
        think_s: Mean time from an answer to the next turn; exponential.
    """

    turns: Turns | Between = 3
    think_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0

    def drawn(self, uniforms: NDArray[np.float64]) -> Ints:
        """Return the turns of a conversation for each uniform number."""
        turns = self.turns
        if isinstance(turns, int):
            return np.full(len(uniforms), turns, dtype=np.int64)
        if turns.mean is not None:
            return turns.at(uniforms)
        return turns.low + (uniforms * (turns.high - turns.low + 1)).astype(np.int64)

    @property
    def most(self) -> int:
        """The turns of the longest conversation."""
        return self.turns if isinstance(self.turns, int) else self.turns.high

    def mean_turns(self) -> float:
        """Return the mean number of turns of a conversation."""
        return float(self._levels().mean())

    def mean_before(self) -> float:
        """Return the mean number of turns before a request's own, over all requests."""
        turns = self._levels()
        return float((turns * (turns - 1)).sum() / (2 * turns.sum()))

    def _levels(self) -> Ints:
        return self.drawn((np.arange(LEVELS) + 0.5) / LEVELS)
