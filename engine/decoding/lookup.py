"""Prompt lookup: draft what followed the newest tokens at their last occurrence. A baseline without a model.

Saxena 2023, "Prompt Lookup Decoding". Nothing is random, so drafts are verified as a drafter's best tokens are.
"""

from collections.abc import Sequence

import torch

from specfleet.engine.decoding.grow import Drafts, Stops
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.rules import Rule
from specfleet.engine.decoding.sampling import GREEDY, Sampling
from specfleet.engine.decoding.trees import static_tree
from specfleet.fleet.policies.shapes import CHAIN

LONGEST, SHORTEST = 3, 1  # tokens that must repeat


class LookupDrafter:
    """Streams and their texts; the interface of a drafter (see `draft.py`)."""

    reads_hidden = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.shape = CHAIN
        self.rule: Rule = "top-k"
        self.texts: dict[int, list[int]] = {}

    def open(self, tag: int, prefix: list[int], sampling: Sampling = GREEDY, seed: int = 0, room: int = 0) -> None:
        """Begin a stream with the committed tokens `prefix`; ValueError if it is open."""
        if tag in self.texts:
            raise ValueError(f"tag {tag} is open already")
        self.texts[tag] = list(prefix)

    def release(self, tag: int) -> None:
        """Drop a stream."""
        self.texts.pop(tag, None)

    def forget(self, tag: int, known: int = 0) -> None:
        """Do nothing: there is no cache."""

    def read(self, tag: int, committed: Sequence[int] = (), hidden: torch.Tensor | None = None) -> None:
        """Take over the committed tokens."""
        if committed:
            self.texts[tag] = list(committed)

    def in_order(self, tags: Sequence[int]) -> list[int]:
        """Return `tags`: every order is as cheap."""
        return list(tags)

    def committed(self, tag: int) -> list[int]:
        """Return the stream's committed tokens."""
        return self.texts[tag]

    def advance(self, tag: int, path: Sequence[int], tokens: Sequence[int], hidden: torch.Tensor | None = None) -> None:
        """Commit `tokens`."""
        self.texts[tag] += tokens

    def go_back(self, tag: int, length: int) -> None:
        """Drop all but the first `length` tokens of a stream."""
        del self.texts[tag][length:]

    def realign(self, tags: Sequence[int]) -> None:
        """Do nothing: there is no cache."""

    def warm_up(self, tokens: int) -> None:
        """Do nothing: there is no model."""

    def draft(
        self, tags: Sequence[int], depths: Sequence[int], stops: Stops | None = None, signals: bool = False
    ) -> Drafts:
        """Draft up to `depths` tokens for each of the streams; none without a repetition."""
        drafted = [self.continuation(tag, depth) for tag, depth in zip(tags, depths, strict=True)]
        counts = [len(row) for row in drafted]
        n = max(counts)
        tokens = placed([[*row, *[-1] * (n - len(row))] for row in drafted], self.device, torch.long)
        return Drafts(static_tree((1,) * n, self.device), tokens.view(len(tags), n), counts, counts)

    def continuation(self, tag: int, most: int) -> list[int]:
        """Return a draft of up to `most` tokens for a stream."""
        return continuation(self.texts[tag], most)


def continuation(text: Sequence[int], most: int) -> list[int]:
    """Return up to `most` tokens that followed the newest earlier occurrence of the text's last tokens.

    The longest repeated end of the text counts, up to LONGEST tokens.
    """
    for size in range(min(LONGEST, len(text) - 1), SHORTEST - 1, -1):
        newest = list(text[-size:])
        for begin in range(len(text) - size - 1, -1, -1):
            if text[begin + size - 1] == newest[-1] and list(text[begin : begin + size]) == newest:
                return list(text[begin + size : begin + size + most])
    return []
