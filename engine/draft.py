"""The drafting side of the engine: chains of draft tokens, with a cache a tag."""

from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from transformers.cache_utils import Cache

from engine.cache import roll_back
from engine.models import CausalLM, probabilities
from engine.rules import draw, rounded


class DraftContent(msgspec.Struct, frozen=True):
    """What a draft step produced: token ids (depth,), and when sampling the distributions (depth, vocabulary) as sent.

    The distributions are float16 weights; `engine.rules.normalised` gives the probabilities that both ends use.
    """

    tokens: list[int]
    distributions: np.ndarray | None = None


class _Stream(msgspec.Struct):
    """Committed and drafted tokens of one decoding stream, and the cache that lags behind them."""

    committed: list[int]
    cache: Cache
    rng: np.random.Generator
    drafted: Sequence[int] = ()


class Drafter:
    """One draft model that serves many streams, each by its tag."""

    def __init__(self, model: CausalLM, temperature: float = 0.0) -> None:
        self.model = model
        self.temperature = temperature
        self.streams: dict[int, _Stream] = {}
        self.warm_up_cache = model.new_cache()

    def open(self, tag: int, prefix: list[int], seed: int = 0) -> None:
        """Begin a stream with the committed tokens `prefix`."""
        self.streams[tag] = _Stream(prefix, self.model.new_cache(), np.random.default_rng(seed))

    def release(self, tag: int) -> None:
        """Forget a stream and free its cache."""
        self.streams.pop(tag, None)

    def prefill(self, tag: int) -> None:
        """Compute the cache of everything but the last committed token, which the draft step will feed."""
        stream = self.streams[tag]
        self.model.logits(stream.committed[:-1], stream.cache, last=1)

    def advance(self, tag: int, base: int, token: int) -> None:
        """Follow the verifier: `base` tokens are committed now, the last of them is the target's own `token`."""
        stream = self.streams[tag]
        accepted = base - len(stream.committed) - 1
        stream.committed = [*stream.committed, *stream.drafted[:accepted], token]
        stream.drafted = ()

    def draft(self, tag: int, depth: int) -> DraftContent:
        """Draft a chain of `depth` tokens after the committed ones.

        The first forward pass feeds what the cache lacks: the target's own token, and after full acceptance also the
        last draft token, which was never fed.
        """
        stream = self.streams[tag]
        roll_back(stream.cache, len(stream.committed) - 1)
        inputs: list[int] | torch.Tensor = stream.committed[stream.cache.get_seq_length() :]
        if self.temperature == 0:
            tokens = self._greedy_chain(inputs, stream.cache, depth)
            content = DraftContent(tokens)
        else:
            content = self._sampled_chain(inputs, stream, depth)
        stream.drafted = content.tokens
        return content

    def warm_up(self, tokens: int) -> None:
        """Run `tokens` draft steps whose result nobody needs (StarSD, figure 6c)."""
        for _ in range(tokens):
            self.model.logits([0], self.warm_up_cache, last=1)
        roll_back(self.warm_up_cache, 0)

    def _greedy_chain(self, inputs: list[int] | torch.Tensor, cache: Cache, depth: int) -> list[int]:
        chain = []
        for _ in range(depth):
            inputs = self.model.logits(inputs, cache, last=1).argmax(-1)  # (1,)
            chain.append(inputs)
        return torch.cat(chain).tolist()  # the only copy to the host

    def _sampled_chain(self, inputs: list[int] | torch.Tensor, stream: _Stream, depth: int) -> DraftContent:
        tokens: list[int] = []
        distributions = []
        for _ in range(depth):
            logits = self.model.logits(inputs, stream.cache, last=1)  # (1, vocabulary)
            sent = rounded(probabilities(logits, self.temperature)[0])  # (vocabulary,) float16
            token = draw(sent, stream.rng)
            tokens.append(token)
            distributions.append(sent)
            inputs = [token]
        return DraftContent(tokens, np.stack(distributions))
