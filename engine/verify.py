"""The verifying side of the engine: a target model that applies the lossless rules, with a cache a tag."""

import msgspec
import numpy as np
import torch
from transformers.cache_utils import Cache

from engine.cache import roll_back
from engine.models import CausalLM, probabilities
from engine.rules import draw, normalised, verify_greedy, verify_sampled


class _Stream(msgspec.Struct):
    """The truth about one decoding stream: its committed tokens, prompt included, and its cache."""

    committed: list[int]
    cache: Cache
    rng: np.random.Generator


class Target:
    """One target model that verifies for its streams, each by its tag."""

    def __init__(self, model: CausalLM, temperature: float = 0.0) -> None:
        self.model = model
        self.temperature = temperature
        self.streams: dict[int, _Stream] = {}

    def open(self, tag: int, prompt: list[int], seed: int = 0) -> None:
        """Begin a stream with its prompt."""
        self.streams[tag] = _Stream(list(prompt), self.model.new_cache(), np.random.default_rng(seed))

    def committed(self, tag: int) -> list[int]:
        """Return the stream's committed tokens, prompt included."""
        return self.streams[tag].committed

    def release(self, tag: int) -> None:
        """Forget a stream and free its cache."""
        self.streams.pop(tag, None)

    def decode(self, tag: int) -> int:
        """Commit one token by plain decoding: the prefill if nothing is cached yet. Return it."""
        return self.verify(tag, [])[1]

    def verify(self, tag: int, drafted: list[int], distributions: np.ndarray | None = None) -> tuple[int, int]:
        """Verify a chain (d,) in one forward pass; commit what is accepted and the target's own token; return both."""
        stream = self.streams[tag]
        fed = [*stream.committed[stream.cache.get_seq_length() :], *drafted]
        logits = self.model.logits(fed, stream.cache, last=len(drafted) + 1)  # (d + 1, vocabulary)
        if self.temperature == 0:
            accepted, token = verify_greedy(drafted, logits.argmax(-1).tolist())
        else:
            accepted, token = self._verify_sampled(logits, drafted, distributions, stream.rng)
        stream.committed += [*drafted[:accepted], token]
        roll_back(stream.cache, len(stream.committed) - 1)
        return accepted, token

    def _verify_sampled(
        self, logits: torch.Tensor, drafted: list[int], distributions: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[int, int]:
        p = probabilities(logits, self.temperature)
        if not drafted:
            return 0, draw(p[0], rng)
        if distributions is None:
            raise ValueError("sampling needs the distributions that the draft tokens were drawn from")
        return verify_sampled(drafted, normalised(distributions), p, rng)
