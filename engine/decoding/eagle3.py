"""An EAGLE-3 draft head for Llama-type targets (Li et al. 2025): the module, and which layers of the target it reads.

`fc` joins the hidden states that enter three layers of the target to one feature a token. The one layer, `midlayer`,
attends with token and feature side by side, each behind a norm of its own, and adds what it finds to the feature. Its
output stands in for features that nobody knows yet; `norm` and `lm_head` make logits of it, over a draft vocabulary
whose tokens `d2t` maps to the target's.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from fleet.errors import InputError

LAYERS_KEY = "eagle_aux_hidden_state_layer_ids"
FEWEST_LAYERS = 7  # of a target whose three usual layers are three


class Eagle3Head(nn.Module):
    """A head that reads the inputs of the target's layers `taps`, of `width` numbers each.

    `draft_vocabulary`: of its LM head; 0 where the target's LM head makes its logits. `embedding`: the target's, if the
    head has none of its own. Submodules are named as in published checkpoints.
    """

    def __init__(
        self,
        config: LlamaConfig,
        taps: Sequence[int],
        width: int,
        draft_vocabulary: int,
        embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        if config._attn_implementation is None:
            config._attn_implementation = "sdpa"
        self.taps = tuple(taps)
        self.owns_embedding, self.owns_lm_head = embedding is None, draft_vocabulary > 0
        hidden, epsilon = config.hidden_size, config.rms_norm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden) if embedding is None else embedding
        self.fc = nn.Linear(len(taps) * width, hidden, bias=getattr(config, "bias", False))
        layer = self.midlayer = LlamaDecoderLayer(config, layer_idx=0)
        for name in ("q_proj", "k_proj", "v_proj"):
            usual = getattr(layer.self_attn, name)
            setattr(layer.self_attn, name, nn.Linear(2 * hidden, usual.out_features, bias=usual.bias is not None))
        layer.hidden_norm = LlamaRMSNorm(hidden, eps=epsilon)
        self.norm = LlamaRMSNorm(hidden, eps=epsilon)
        self.lm_head = nn.Linear(hidden, draft_vocabulary, bias=False) if draft_vocabulary else None
        self.rotary_emb = LlamaRotaryEmbedding(config=config)
        self.token_ids: torch.Tensor | None = None  # the target's, of the draft vocabulary; None where they are equal

    @property
    def decoder_layer(self) -> nn.Module:
        """Its decoder layer."""
        return self.midlayer

    def read(self, states: torch.Tensor) -> torch.Tensor:
        """Return the features (..., hidden) that it makes of the target's states (..., taps x width)."""
        return self.fc(states)

    def entry(self, tokens: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what enters the layer for tokens (N,) and features (N, hidden).

        The stream (N, hidden), and what attention reads (N, 2 * hidden).
        """
        layer = self.midlayer
        embedded = self._normed(self.embed_tokens(tokens), layer.input_layernorm)
        normed = self._normed(features, layer.hidden_norm)
        return self._residual(features, normed), torch.cat([embedded, normed], -1)

    def own_logits(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return logits (..., vocabulary) of outputs (..., hidden): minus infinity for what it cannot draft."""
        logits = self.drafted_logits(self._normed(outputs, self.norm))
        if self.token_ids is None:
            return logits
        everything = logits.new_full((*logits.shape[:-1], self.config.vocab_size), -torch.inf)
        return everything.index_copy_(-1, self.token_ids, logits)

    def drafted_logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Return logits (..., draft vocabulary) of normed outputs (..., hidden)."""
        assert self.lm_head is not None  # a head that loads without one is given the target's
        return self.lm_head(normed)

    def forward(
        self,
        input_ids: torch.Tensor,
        features: torch.Tensor,
        past_key_values: Cache | None,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Estimate what stands for the features of the following positions: (B, T, hidden).

        As `EagleHead.forward`; `features` are what `read` or this returned.
        """
        layer = self.midlayer
        normed = layer.hidden_norm(features)
        attended = torch.cat([layer.input_layernorm(self.embed_tokens(input_ids).to(features)), normed], -1)
        mask = create_causal_mask(self.config, attended, attention_mask, past_key_values)
        found, _ = layer.self_attn(
            hidden_states=attended,
            attention_mask=mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            position_embeddings=self.rotary_emb(attended, position_ids),
        )
        stream = self._residual(features, normed) + found
        return stream + layer.mlp(layer.post_attention_layernorm(stream))

    def _residual(self, features: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        return normed if getattr(self.config, "norm_before_residual", False) else features

    def _normed(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        """Norm x in its own precision, as the lean pass does."""
        return functional.rms_norm(x, x.shape[-1:], norm.weight, self.config.rms_norm_eps)


def is_eagle3(content: Mapping[str, object]) -> bool:
    """Whether a head's config.json is that of an EAGLE-3 head."""
    architectures = content.get("architectures")
    named = isinstance(architectures, list) and any("eagle3" in str(name).lower() for name in architectures)
    return named or "draft_vocab_size" in content


def tapped_layers(content: Mapping[str, object], layers: int, source: object) -> tuple[int, ...]:
    """Return the target's layers whose inputs a head with this config.json reads, of a target with so many `layers`.

    Without a word in it: the third, the middle and the third last. `eagle_config` numbers layers whose outputs are read
    (SpecForge, SGLang), a key of the same name at the top those whose inputs are (vLLM). InputError names `source`.
    """
    nested = content.get("eagle_config")
    nested = nested if isinstance(nested, dict) else {}
    if nested.get("use_aux_hidden_state", True) is not True:
        raise InputError(f"{source}: use_aux_hidden_state = false, but an EAGLE-3 head reads hidden states of layers")
    if nested.get(LAYERS_KEY) is not None:
        shift, given = 1, nested[LAYERS_KEY]
    elif content.get(LAYERS_KEY) is not None:
        shift, given = 0, content[LAYERS_KEY]
    elif layers < FEWEST_LAYERS:
        raise InputError(
            f"{source}: a target of {layers} layers has no three layers that are usually read; name them by "
            f"eagle_config.{LAYERS_KEY}"
        )
    else:
        return 2, layers // 2, layers - 3
    if not isinstance(given, list) or not given or not all(type(number) is int for number in given):
        raise InputError(f"{source}: {LAYERS_KEY} = {given!r}; allowed: a list of numbers of layers")
    taps = sorted({number + shift for number in given})
    if len(taps) < len(given) or taps[0] < 0 or taps[-1] >= layers:
        raise InputError(
            f"{source}: {LAYERS_KEY} = {given}; allowed: different ones from {-shift} to {layers - 1 - shift}, for the "
            f"target has {layers} layers"
        )
    return tuple(taps)
