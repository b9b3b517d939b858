"""Drafting with an EAGLE head: it reads the target's hidden states beside the tokens, and extends its own guesses.

A pair is a token and the feature that the head makes of the target's hidden states one place before it. Pairs of
committed tokens are fed once the target has sent their states; while a draft grows, the head's own output takes their
place, and is fed again with the true ones after verification, as in the published method (Li et al. 2024, EAGLE-2,
section 3). EAGLE-3's heads make features of more states, and logits by a head of their own; the rest is the same.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.decoding.cache import CacheShape, RowCache
from engine.decoding.draft import Drafter, last_of
from engine.decoding.eagle import EagleHead
from engine.decoding.eagle3 import Eagle3Head
from engine.decoding.feed import Feed, Nodes
from engine.decoding.grow import Drafts
from engine.decoding.llama import Rotary, layer_of, rotary_table, run_layers
from engine.decoding.models import CHUNK, POSITIONS, CausalLM
from engine.decoding.placing import placed
from engine.decoding.rules import Rule
from engine.decoding.slots import SlotCache
from fleet.policies.shapes import CHAIN, Shape


class EagleDrafter(Drafter):
    """A head that drafts for a target; embedding and language model head are the target's, unless it has its own.

    The target must be one with the head's `taps`.
    """

    reads_hidden = True

    def __init__(
        self,
        head: EagleHead | Eagle3Head,
        target: CausalLM,
        shape: Shape = CHAIN,
        rule: Rule = "rejection",
        cache: RowCache | None = None,
    ) -> None:
        if cache is None:
            cache = SlotCache(head_shape(head), target.dtype, target.device)
        super().__init__(target, shape, rule, cache)
        self.head = head
        self.layers = [replace(layer_of(head.decoder_layer), first_norm=None)]  # the head norms what its layer reads
        self.rotary = Rotary(*torch.empty(2, 0))
        self.graphs = None if target.graphs is None else target.graphs.beside()
        self.features: dict[int, torch.Tensor] = {}  # newest ones of each row, up to the last but one token
        self.outputs = torch.empty(0)  # of the head, for the last level of the draft that grows: (B, w, hidden)

    @property
    def state_numbers(self) -> int:
        """How many numbers the target's states of one token are."""
        return int(self.model.config.hidden_size) * max(1, len(self.head.taps))

    def release(self, tag: int) -> None:
        """Forget a stream and free its cache."""
        super().release(tag)
        self.features.pop(tag, None)

    def prefill(self, tag: int, committed: Sequence[int] = (), hidden: torch.Tensor | None = None) -> None:
        """Feed the pairs of all committed tokens but the newest; `hidden` (tokens - 1, states): the target's states."""
        stream = self.streams[tag]
        if committed:
            stream.committed = list(committed)
        if hidden is None:
            raise ValueError(f"tag {tag}: an EAGLE head cannot read a prompt without the target's hidden states")
        features = self._features_of(hidden)
        tokens = placed(stream.committed[1:-1], self.device, torch.long)
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            self._feed([tag], part, features[start : start + len(part)], [len(part)])
            self.cache.lengths[tag] += len(part)
        self.features[tag] = features[-CHUNK:]

    def advance(self, tag: int, path: Sequence[int], tokens: Sequence[int], hidden: torch.Tensor | None = None) -> None:
        """Follow the verifier; `hidden` (accepted + 1, states): its states at the root and at the accepted nodes."""
        super().advance(tag, path, tokens)
        assert hidden is not None
        self.features[tag] = torch.cat([self.features[tag], self._features_of(hidden)])[-CHUNK:]

    def warm_up(self, tokens: int) -> None:
        """Do nothing: a head without a target's states has nothing to run on."""

    def _keep(self, tag: int, drafts: Drafts, row: int, path: Sequence[int]) -> None:
        """Keep nothing of a draft: its pairs held guesses."""

    def _missing(self, tags: Sequence[int]) -> list[list[int]]:
        """Return the tokens of the pairs that each cache lacks, at least the newest one's."""
        return self._lacking(tags, [len(self.streams[tag].committed) - 1 for tag in tags])

    def _catch_up(self, tags: Sequence[int]) -> torch.Tensor:
        """Feed the pairs that became known; return the logits after the newest token (B, V)."""
        missing = self._missing(tags)
        counts = [len(tokens) for tokens in missing]
        tokens = placed([token for row in missing for token in row], self.device)
        states = torch.cat([self.features[tag][-count:] for tag, count in zip(tags, counts, strict=True)])
        hidden = self._feed(tags, tokens, states, counts)
        for tag, count in zip(tags, counts, strict=True):
            self.cache.lengths[tag] += count
        last = last_of(hidden, counts)
        self.outputs = last[:, None]
        return self._logits(last)

    def _extend(self, tags: Sequence[int], tokens: torch.Tensor, above: torch.Tensor, nodes: Nodes) -> torch.Tensor:
        """Feed nodes (B, w) with the outputs at those `above` them; return the logits after them (B, w, V)."""
        B, w = tokens.shape
        parents = above.expand(B, -1)[:, :, None].expand(-1, -1, self.outputs.shape[-1])
        states = self.outputs.gather(1, parents).flatten(0, 1)
        hidden = self._feed(tags, tokens.clamp(min=0).flatten(), states, [w] * B, nodes)
        self.outputs = hidden.view(B, w, -1)
        return self._logits(self.outputs)

    @torch.inference_mode()
    def _features_of(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.head.read(hidden.to(self.device, self.model.dtype))

    @torch.inference_mode()
    def _logits(self, outputs: torch.Tensor) -> torch.Tensor:
        own = self.head.own_logits(outputs)
        return self.model.logits(outputs) if own is None else own

    @torch.inference_mode()
    def _feed(
        self,
        tags: Sequence[int],
        tokens: torch.Tensor,
        states: torch.Tensor,
        counts: Sequence[int],
        nodes: Nodes | None = None,
    ) -> torch.Tensor:
        """Run N pairs of `tokens` (N,) and `states` (N, hidden) through the head: (N, hidden)."""

        def forward(begin: int, end: int, feed: Feed) -> torch.Tensor:
            if len(self.rotary.cosines) < feed.width:
                self.rotary = rotary_table(self.head.rotary_emb, max(2 * feed.width, POSITIONS), states[:1])
                if self.graphs is not None:
                    self.graphs.forget()  # they read the old table
            given = self.cache, tokens[begin:end], feed, states[begin:end]
            return self._pass(*given) if self.graphs is None else self.graphs.run(self._pass, *given)

        return self.cache.fed(tags, counts, nodes, forward)

    def _pass(self, cache: RowCache, tokens: torch.Tensor, feed: Feed, states: torch.Tensor) -> torch.Tensor:
        x, read = self.head.entry(tokens, states)
        return run_layers(self.layers, x, feed, cache, self.rotary, self.head.config, read)


def head_shape(head: EagleHead | Eagle3Head) -> CacheShape:
    """What one pair needs in the cache."""
    config = head.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return CacheShape(1, config.num_key_value_heads, size)
