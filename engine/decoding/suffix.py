"""Suffix decoding: draft what most often followed the longest repeated ends of a text, here and in earlier answers.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), with the defaults of vLLM's `method: suffix`. The length of a
draft follows the match: long repetitions draft more.
"""

from collections import deque
from collections.abc import Sequence

import torch

from specfleet.engine.decoding.lookup import LookupDrafter
from specfleet.engine.decoding.sampling import GREEDY, Sampling

DEPTH = 24  # tokens of the longest match and its draft together: suffix_decoding_max_tree_depth
PER_MATCHED = 1.0  # most draft tokens for each matched one: suffix_decoding_max_spec_factor
LEAST = 0.1  # estimated probability of the last draft token: suffix_decoding_min_token_prob
Guess = tuple[float, list[int]]  # the tokens that are expected to pass, and the draft
KEPT = 2**15  # tokens of earlier answers, up to DEPTH nodes each; the oldest answers go first


class Counts:
    """How often each string of up to DEPTH tokens occurs in some texts: a trie of suffixes."""

    __slots__ = ("next", "times")

    def __init__(self) -> None:
        self.times = 0
        self.next: dict[int, Counts] = {}

    def add(self, text: Sequence[int], known: int = 0, times: int = 1) -> None:
        """Count the strings of a text that end beyond its first `known` tokens; `times` = -1 takes them away."""
        for begin in range(max(known - DEPTH + 1, 0), len(text)):
            node = self
            for place in range(begin, min(begin + DEPTH, len(text))):
                token = text[place]
                following = node.next.get(token)
                if following is None:
                    following = node.next[token] = Counts()
                if place >= known:
                    following.times += times
                    if not following.times:
                        del node.next[token]
                        break
                node = following

    def best(self, text: Sequence[int], most: int) -> Guess:
        """Return the draft with the best score over all matched ends of a text."""
        best: Guess = 0.0, []
        for size in range(1, min(DEPTH, len(text))):
            node: Counts | None = self
            for token in text[-size:]:
                node = node.next.get(token) if node else None
            if node is None or not node.next:  # no longer end was followed by anything, either
                break
            best = max(best, node.likeliest(min(most, int(PER_MATCHED * size))))
        return best

    def likeliest(self, most: int) -> Guess:
        """Follow the most frequent tokens, as long as they are likely enough."""
        node, probability, score, drafted = self, 1.0, 0.0, list[int]()
        while node.next and len(drafted) < most:
            token, following = max(node.next.items(), key=lambda pair: pair[1].times)
            probability *= following.times / node.times
            if probability < LEAST:
                break
            drafted.append(token)
            score, node = score + probability, following
        return score, drafted


class SuffixDrafter(LookupDrafter):
    """Streams with the counts of their texts, and those of the answers of streams that ended."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.own: dict[int, tuple[Counts, int]] = {}  # counts of each stream's text, and how much of it is counted
        self.prompts: dict[int, int] = {}  # tokens
        self.earlier, self.answers, self.kept = Counts(), deque[list[int]](), 0

    def open(self, tag: int, prefix: list[int], sampling: Sampling = GREEDY, seed: int = 0, room: int = 0) -> None:
        """Begin a stream with the committed tokens `prefix`; ValueError if it is open."""
        super().open(tag, prefix, sampling, seed, room)
        self.prompts[tag] = len(prefix)

    def release(self, tag: int) -> None:
        """End a stream, and keep its answer for others."""
        self.own.pop(tag, None)
        answer = self.texts.get(tag, [])[self.prompts.pop(tag, 0) :][-KEPT:]
        super().release(tag)
        self.earlier.add(answer)
        self.answers.append(answer)
        self.kept += len(answer)
        while self.kept > KEPT:
            oldest = self.answers.popleft()
            self.earlier.add(oldest, times=-1)
            self.kept -= len(oldest)

    def read(self, tag: int, committed: Sequence[int] = (), hidden: torch.Tensor | None = None) -> None:
        """Take over the committed tokens."""
        super().read(tag, committed)
        self.own.pop(tag, None)

    def go_back(self, tag: int, length: int) -> None:
        """Drop all but the first `length` tokens of a stream."""
        if length < len(self.texts[tag]):
            self.own.pop(tag, None)
        super().go_back(tag, length)

    def continuation(self, tag: int, most: int) -> list[int]:
        """Return the better of both drafts: by the stream's own text and by earlier answers."""
        text = self.texts[tag]
        counts, counted = self.own.get(tag) or (Counts(), 0)
        counts.add(text, counted)
        self.own[tag] = counts, len(text)
        return max(counts.best(text, most), self.earlier.best(text, most))[1]
