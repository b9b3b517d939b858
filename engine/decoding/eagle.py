"""An EAGLE-style draft head for Llama-type targets (Li et al. 2024): the module.

The head guesses the target's next feature, that is the last hidden state after the final norm, which the target's LM
head reads. At position i it sees the feature of position i and the token that follows, x_{i+1}; what it returns
estimates the feature of position i + 1, and an LM head turns that into logits of x_{i+2}. Deeper in a draft its own
output stands in for the feature that nobody knows yet. EAGLE-3's head is another one: `eagle3.py`; checkpoints of both
are read by `eagle_files.py`.
"""

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding


class EagleHead(nn.Module):
    """One linear layer that joins token and feature, and one Llama layer that attends to the joined past.

    `embedding`: the target's, if the head has none of its own. `owns_lm_head`: whether logits come from a head of its
    own instead of the target's. Submodules are named as in published checkpoints.
    """

    taps: tuple[int, ...] = ()  # layers of the target whose inputs it reads: none, it reads the last hidden state

    def __init__(self, config: LlamaConfig, embedding: nn.Module | None = None, owns_lm_head: bool = False) -> None:
        super().__init__()
        self.config = config
        if config._attn_implementation is None:
            config._attn_implementation = "sdpa"
        width = config.hidden_size
        self.owns_embedding, self.owns_lm_head = embedding is None, owns_lm_head
        self.embed_tokens = nn.Embedding(config.vocab_size, width) if embedding is None else embedding
        self.fc = nn.Linear(2 * width, width, bias=getattr(config, "bias", True))
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, layer_idx=0)])
        self.layers[0].input_layernorm = nn.Identity()  # attention reads the joined input as it is
        self.lm_head = nn.Linear(width, config.vocab_size, bias=False) if owns_lm_head else None
        self.rotary_emb = LlamaRotaryEmbedding(config=config)

    @property
    def decoder_layer(self) -> nn.Module:
        """Its decoder layer."""
        return self.layers[0]

    def read(self, states: torch.Tensor) -> torch.Tensor:
        """Return the features (..., hidden) that it makes of the target's states: these themselves."""
        return states

    def entry(self, tokens: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what enters the layer for tokens (N,) and features (N, hidden).

        The stream (N, hidden), and what attention reads of it, None for the stream itself.
        """
        joined = torch.cat([self.embed_tokens(tokens), features], -1)
        return functional.linear(joined, self.fc.weight, self.fc.bias), None

    def own_logits(self, outputs: torch.Tensor) -> torch.Tensor | None:
        """Return logits (..., vocabulary) of outputs (..., hidden), None where the target's LM head is to make them."""
        return None if self.lm_head is None else self.lm_head(outputs)

    def forward(
        self,
        input_ids: torch.Tensor,
        features: torch.Tensor,
        past_key_values: Cache | None,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Estimate the features of the following positions: (B, T, hidden).

        `features` (B, T, hidden) are those of `position_ids` (B, T), `input_ids` (B, T) the tokens that follow them.
        `attention_mask` (B or 1, 1, T, cached + T) is whatever the attention function takes; None means causal, after
        everything that is cached.
        """
        joined = torch.cat([self.embed_tokens(input_ids).to(features), features], dim=-1)  # (B, T, 2 * hidden)
        stream = self.fc(joined.to(self.fc.weight.dtype))
        mask = create_causal_mask(self.config, stream, attention_mask, past_key_values)
        return self.layers[0](
            stream,
            attention_mask=mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            position_embeddings=self.rotary_emb(stream, position_ids),
        )
