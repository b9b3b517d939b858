"""EAGLE (Li et al. 2024) and EAGLE-3 (Li et al. 2025) for Llama-type targets: the heads, and drafting with them.

EAGLE's head estimates the target's next feature: the last hidden state after the final norm, the input of the target's
LM head. At position i it reads the feature of position i and the token x_{i+1}. It returns an estimate of the feature
of position i + 1, and an LM head turns that into logits of x_{i+2}. Deeper in a draft its own output replaces the
unknown feature.

EAGLE-3's head reads the hidden states that enter three layers of the target; `fc` joins them to one feature a token.
Its one layer, `midlayer`, attends with token and feature side by side, each behind a norm of its own, and adds the
result to the feature. `norm` and `lm_head` make logits over a draft vocabulary; `d2t` maps its tokens to the target's.

A pair is a token and the feature that the head makes of the target's hidden states one place before it. Pairs of
committed tokens are fed after the target has sent their states. In a growing draft the head's own output replaces them;
after verification the true pairs are fed again, as in the published method (EAGLE-2, section 3).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from specfleet.engine.decoding.cache import RowCache, shape_of
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.feed import Feed, Joined, Nodes
from specfleet.engine.decoding.grow import Drafts
from specfleet.engine.decoding.llama import Rotary, fuse_layer, norm, rotary_table, run_layers
from specfleet.engine.decoding.models import CHUNK, CausalLM
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.rules import Rule
from specfleet.fleet.policies.shapes import CHAIN, Shape


class _Head(nn.Module):
    """Common part of both heads: a config, an embedding of its own or the target's, and rotary positions."""

    layer_name: str  # of its decoder layer

    def __init__(self, config: LlamaConfig, embedding: nn.Module | None, owns_lm_head: bool) -> None:
        super().__init__()
        self.config = config
        if config._attn_implementation is None:
            config._attn_implementation = "sdpa"
        self.owns_embedding, self.owns_lm_head = embedding is None, owns_lm_head
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size) if embedding is None else embedding
        self.rotary_emb = LlamaRotaryEmbedding(config=config)

    @property
    def decoder_layer(self) -> nn.Module:
        """Its decoder layer."""
        return self.get_submodule(self.layer_name)


class EagleHead(_Head):
    """One linear layer that joins token and feature, and one Llama layer that attends to the joined past.

    - `embedding`: the target's, if the head has none of its own.
    - `owns_lm_head`: whether logits come from a head of its own instead of the target's.

    Submodules are named as in published checkpoints.
    """

    layer_name = "layers.0"
    taps: tuple[int, ...] = ()  # layers of the target that it reads the inputs of; none: it reads the last hidden state

    def __init__(self, config: LlamaConfig, embedding: nn.Module | None = None, owns_lm_head: bool = False) -> None:
        super().__init__(config, embedding, owns_lm_head)
        width = config.hidden_size
        self.fc = nn.Linear(2 * width, width, bias=getattr(config, "bias", True))
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, layer_idx=0)])
        self.layers[0].input_layernorm = nn.Identity()  # attention reads the joined input without a norm
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False) if owns_lm_head else None

    def read(self, states: torch.Tensor) -> torch.Tensor:
        """Return the features (..., hidden) of the target's states: the states themselves."""
        return states

    def entry(self, tokens: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the input of the layer for tokens (N,) and features (N, hidden).

        The stream (N, hidden), and what attention reads of it, None for the stream itself.
        """
        joined = torch.cat([self.embed_tokens(tokens), features], -1)
        return functional.linear(joined, self.fc.weight, self.fc.bias), None

    def own_logits(self, outputs: torch.Tensor) -> torch.Tensor | None:
        """Return logits (..., vocabulary) of outputs (..., hidden); None if the target's LM head makes them."""
        return None if self.lm_head is None else self.lm_head(outputs)


class Eagle3Head(_Head):
    """A head that reads the inputs of the target's layers `taps`, of `width` numbers each.

    - `draft_vocabulary`: of its LM head; 0 if the target's LM head makes its logits.
    - `embedding`: the target's, if the head has none of its own.

    Submodules are named as in published checkpoints.
    """

    layer_name = "midlayer"

    def __init__(
        self, config: LlamaConfig, taps: Sequence[int], width: int, draft_vocabulary: int,
        embedding: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, embedding, draft_vocabulary > 0)
        self.taps = tuple(taps)
        hidden, epsilon = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(len(taps) * width, hidden, bias=getattr(config, "bias", False))
        layer = self.midlayer = LlamaDecoderLayer(config, layer_idx=0)
        for name in ("q_proj", "k_proj", "v_proj"):
            usual = getattr(layer.self_attn, name)
            setattr(layer.self_attn, name, nn.Linear(2 * hidden, usual.out_features, bias=usual.bias is not None))
        layer.hidden_norm = LlamaRMSNorm(hidden, eps=epsilon)
        self.norm = LlamaRMSNorm(hidden, eps=epsilon)
        self.lm_head = nn.Linear(hidden, draft_vocabulary, bias=False) if draft_vocabulary else None
        self.token_ids: torch.Tensor | None = None  # the target's ids of the draft vocabulary; None if they are equal

    def read(self, states: torch.Tensor) -> torch.Tensor:
        """Return the features (..., hidden) of the target's states (..., taps x width)."""
        return self.fc(states)

    def entry(self, tokens: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the input of the layer for tokens (N,) and features (N, hidden).

        The stream (N, hidden), and what attention reads (N, 2 * hidden).
        """
        layer = self.midlayer
        embedded = norm(self.embed_tokens(tokens), layer.input_layernorm.weight, self.config.rms_norm_eps)
        normed = norm(features, layer.hidden_norm.weight, self.config.rms_norm_eps)
        stream = normed if getattr(self.config, "norm_before_residual", False) else features
        return stream, torch.cat([embedded, normed], -1)

    def own_logits(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return logits (..., vocabulary) of outputs (..., hidden): minus infinity for tokens that it cannot draft."""
        assert self.lm_head is not None  # a head without one has the target's
        logits = self.lm_head(norm(outputs, self.norm.weight, self.norm.variance_epsilon))
        if self.token_ids is None:
            return logits
        everything = logits.new_full((*logits.shape[:-1], self.config.vocab_size), -torch.inf)
        return everything.index_copy_(-1, self.token_ids, logits)


AnyHead = EagleHead | Eagle3Head


class EagleDrafter(Drafter):
    """A head that drafts for a target, with the target's embedding and LM head unless it has its own.

    The target must be one with the head's `taps`.
    """

    reads_hidden = True
    uncached = 1  # the first token has no feature before it

    def __init__(
        self,
        head: AnyHead,
        target: CausalLM,
        shape: Shape = CHAIN,
        rule: Rule = "rejection",
        cache: RowCache | None = None,
    ) -> None:
        if cache is None:
            cache = target.new_cache(shape=shape_of(head.config))
        super().__init__(target, shape, rule, cache)
        self.cache.erases = True
        self.head = head
        # The head norms the inputs of its layer.
        self.layers = [replace(fuse_layer(head.decoder_layer), first_norm=None)]
        self.tables = [Rotary(*torch.empty(2, 0))]  # of positions: graphs go on reading older ones
        self.graphs = target.graphs
        self.features: dict[int, torch.Tensor] = {}  # newest ones of each row, up to the last but one token
        self.outputs = torch.empty(0)  # of the head, for the last level of the growing draft: (B * w, hidden)

    @property
    def state_numbers(self) -> int:
        """Numbers of the target's states of one token."""
        return int(self.model.config.hidden_size) * max(1, len(self.head.taps))

    def release(self, tag: int) -> None:
        """Drop a stream and free its cache."""
        super().release(tag)
        self.features.pop(tag, None)

    def _fill(self, tag: int, committed: Sequence[int], hidden: torch.Tensor | None) -> None:
        """Feed the pairs of all committed tokens but the newest, as far as the row lacks them."""
        parts = [self.features[tag]] if tag in self.features else []
        if hidden is not None:
            parts.append(self._features_of(hidden))
        if not parts:
            raise ValueError(f"tag {tag}: an EAGLE head cannot read a prompt without the target's hidden states")
        features = torch.cat(parts)
        tokens = placed(committed[self.cache.lengths[tag] + 1 : -1], self.device, torch.long)
        before = len(features) - 1 - len(tokens)  # features of pairs that the row has
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            self.features[tag] = features[: before + start + len(part)]
            self.feed([tag], part, [len(part)])
            self.cache.lengths[tag] += len(part)
        self.features[tag] = features[-CHUNK:]

    def forget(self, tag: int, known: int = 0) -> None:
        """Forget a stream's cache, and the features of its text."""
        super().forget(tag, known)
        self.features.pop(tag, None)

    def advance(self, tag: int, path: Sequence[int], tokens: Sequence[int], hidden: torch.Tensor | None = None) -> None:
        """Commit a path of the last draft; `hidden` (accepted + 1, states): of the root and the accepted nodes."""
        super().advance(tag, path, tokens)
        if tag not in self.features:  # its prefill reads all states
            return
        assert hidden is not None
        lacking = len(self.streams[tag].committed) - self.cache.lengths[tag]  # many, if others drafted for it
        self.features[tag] = torch.cat([self.features[tag], self._features_of(hidden)])[-max(CHUNK, lacking) :]

    def warm_up(self, tokens: int) -> None:
        """Do nothing: a head needs a target's states to run."""

    def _keep(self, tag: int, drafts: Drafts, row: int, path: Sequence[int]) -> None:
        """Keep nothing of a draft: its pairs have estimated features."""

    @torch.inference_mode()
    def _features_of(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.head.read(hidden.to(self.device, self.model.dtype))

    @torch.inference_mode()
    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.outputs = hidden
        logits = self.head.own_logits(hidden)
        return self.model.logits(hidden) if logits is None else logits

    @torch.inference_mode()
    def feed(
        self, tags: Sequence[int], tokens: torch.Tensor, counts: Sequence[int], nodes: Nodes | None = None
    ) -> torch.Tensor:
        """Feed pairs that are now known, or nodes with the outputs of those above them."""
        if nodes is None or nodes.above is None:
            states = torch.cat([self.features[tag][-count:] for tag, count in zip(tags, counts, strict=True)])
        elif nodes.attended is None:  # a chain
            states = self.outputs
        else:
            outputs = self.outputs.view(len(tags), -1, self.outputs.shape[-1])
            parents = nodes.above.expand(len(tags), -1)[:, :, None].expand(-1, -1, outputs.shape[-1])
            states = outputs.gather(1, parents).flatten(0, 1)

        def forward(begin: int, end: int, feed: Feed | Joined) -> torch.Tensor:
            if len(self.tables[-1].cosines) < feed.width:
                self.tables.append(rotary_table(self.head.rotary_emb, feed.width, states[:1]))
            inputs = self.cache, tokens[begin:end], feed, states[begin:end]
            if self.graphs is None or isinstance(feed, Joined):
                return self._pass(*inputs)
            return self.graphs.run(self._pass, *inputs)

        return self.cache.fed(tags, counts, nodes, forward, joins=True)

    def _pass(self, cache: RowCache, tokens: torch.Tensor, feed: Feed | Joined, states: torch.Tensor) -> torch.Tensor:
        x, read = self.head.entry(tokens, states)
        return run_layers(self.layers, x, feed, cache, self.tables[-1], self.head.config, read)
