"""Drafting a block in one pass (PARD, An et al. 2025): mask tokens after a text stand for the tokens to come.

The model is fed the tokens that its cache lacks, then a mask for each further token of the draft. The logits after the
last token and after each mask are those of the draft's tokens, whichever are drawn before them. So every distribution
is independent of the tokens drafted before, which rejection sampling allows. The cache keeps real tokens alone:
accepted ones are fed again in the next round, in place of masks.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch

from specfleet.engine.decoding.cache import RowCache
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.feed import Nodes
from specfleet.engine.decoding.grow import Drafts, Stops
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.rules import Rule
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN

MASK_KEY = "pard_token"  # of the mask token's id in config.json, as vLLM reads it


class BlockDrafter(Drafter):
    """A draft model that reads mask tokens; its drafts are chains."""

    def __init__(self, model: CausalLM, rule: Rule = "rejection", cache: RowCache | None = None) -> None:
        super().__init__(model, CHAIN, rule, cache)
        self.mask = mask_token(model)
        self.masks = 0  # fed for each row of the growing draft
        self.block = torch.empty(0)  # its logits (B, masks + 1, V)

    def draft(
        self, tags: Sequence[int], depths: Sequence[int], stops: Stops | None = None, signals: bool = False
    ) -> Drafts:
        """Draft `depths` tokens for each of the streams `tags` in one pass; shorter drafts are cut from the longest."""
        self.masks = max(depths) - 1
        return super().draft(tags, depths, stops, signals)

    def _catch_up(self, tags: Sequence[int]) -> torch.Tensor:
        """Feed the tokens that caches lack, and the masks after them; return the logits (B, V) after the tokens."""
        missing = self._missing(tags)
        counts = [len(tokens) + self.masks for tokens in missing]
        fed = [token for tokens in missing for token in (*tokens, *[self.mask] * self.masks)]
        hidden = self.feed(tags, placed(fed, self.device), counts)
        for tag, tokens in zip(tags, missing, strict=True):
            self.cache.lengths[tag] += len(tokens)
        places = [end - left for end in accumulate(counts) for left in range(self.masks + 1, 0, -1)]
        self.block = self._logits(hidden[placed(places, self.device)]).view(len(tags), self.masks + 1, -1)
        return self.block[:, 0]

    def _extend(self, tags: Sequence[int], tokens: torch.Tensor, nodes: Nodes) -> torch.Tensor:
        """Return the logits (B, 1, V) of the next token: they are known."""
        return self.block[:, nodes.offset + 1, None]

    def _keep(self, tag: int, drafts: Drafts, row: int, path: Sequence[int]) -> None:
        """Keep nothing of a draft: masks were fed in place of its tokens."""


def mask_token(model: CausalLM) -> int:
    """Return the id of a model's mask token; InputError if its config.json names none of its vocabulary."""
    stated = getattr(model.config, MASK_KEY, None)
    if not isinstance(stated, int) or not 0 <= stated < model.vocabulary:
        raise InputError(
            f"{model.name}: its config.json has {MASK_KEY} = {stated!r}, and drafters.kind = 'block' needs the id of a "
            f"mask token; allowed: 0 to {model.vocabulary - 1}, or drafters.kind = 'model'"
        )
    return stated
