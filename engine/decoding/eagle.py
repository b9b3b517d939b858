"""An EAGLE-style draft head for Llama-type targets (Li et al. 2024): the module, and its checkpoints on disk.

The head guesses the target's next feature, that is the last hidden state after the final norm, which the target's LM
head reads. At position i it sees the feature of position i and the token that follows, x_{i+1}; what it returns
estimates the feature of position i + 1, and the target's LM head turns that into logits of x_{i+2}. Deeper in a draft
its own output stands in for the feature that nobody knows yet.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import nn
from transformers import LlamaConfig
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from fleet.errors import InputError
from fleet.files import write_file

EMBEDDING = "embed_tokens.weight"  # the only tensor that a checkpoint may leave to the target
NEEDED_KEYS = ("intermediate_size", "num_attention_heads")  # transformers would assume those of a 7B model
WRITTEN_KEYS = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "hidden_act", "max_position_embeddings", "rms_norm_eps", "attention_bias", "mlp_bias",
)  # fmt: skip


class EagleHead(nn.Module):
    """One linear layer that joins token and feature, and one Llama layer that attends to the joined past.

    `embedding`: the target's, if the head has none of its own. Submodules are named as in published checkpoints.
    """

    def __init__(self, config: LlamaConfig, embedding: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        if config._attn_implementation is None:
            config._attn_implementation = "sdpa"
        width = config.hidden_size
        self.owns_embedding = embedding is None
        self.embed_tokens = nn.Embedding(config.vocab_size, width) if embedding is None else embedding
        self.fc = nn.Linear(2 * width, width, bias=getattr(config, "bias", True))
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, layer_idx=0)])
        self.layers[0].input_layernorm = nn.Identity()  # attention reads the joined input as it is
        self.rotary_emb = LlamaRotaryEmbedding(config=config)

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


def own_tensors(head: EagleHead) -> dict[str, torch.Tensor]:
    """Return what a checkpoint of `head` holds: all of its weights, without an embedding that is the target's."""
    return {name: weight for name, weight in head.state_dict().items() if head.owns_embedding or name != EMBEDDING}


def load_head(folder: Path, target: nn.Module, dtype: torch.dtype, device: torch.device | str) -> EagleHead:
    """Load a published checkpoint for `target`, a causal language model; InputError if it does not fit."""
    tensors = _read_tensors(folder)
    embedding = target.get_input_embeddings()
    config = _read_config(folder, *embedding.weight.shape)
    with torch.device("meta"):  # numbers come from the checkpoint only
        head = EagleHead(config, None if EMBEDDING in tensors else embedding)
    _check(folder, tensors, own_tensors(head))
    placed = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    head.load_state_dict(placed, strict=False, assign=True)  # strict would ask for the target's embedding
    # Computed, not loaded, and never in half precision.
    head.rotary_emb = LlamaRotaryEmbedding(config=config).to(device)
    return head.eval()


def save_head(head: EagleHead, folder: Path) -> None:
    """Write `head` in the published layout, weights in half precision."""
    config = head.config
    rope = dict(config.rope_parameters)
    content = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "dtype": "float16"}
    content |= {key: getattr(config, key) for key in WRITTEN_KEYS}
    content |= {"bias": head.fc.bias is not None, "rope_theta": rope.pop("rope_theta")}
    if rope["rope_type"] != "default":
        content["rope_scaling"] = rope
    write_file(folder / "config.json", json.dumps(content, indent=2) + "\n")
    tensors = {name: tensor.half().contiguous() for name, tensor in own_tensors(head).items()}
    write_file(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))


def _read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Read all weights, on the host and in the precision of the file."""
    if (path := folder / "model.safetensors").is_file():
        return load_file(path)
    if (path := folder / "pytorch_model.bin").is_file():
        return torch.load(path, map_location="cpu", weights_only=True)
    raise InputError(f"{folder}: no weights of a draft head; expected model.safetensors or pytorch_model.bin")


def _read_config(folder: Path, vocabulary: int, width: int) -> LlamaConfig:
    """Read config.json, with the target's own sizes, which `_check` then asks the tensors for."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder}: no config.json; expected that of a Llama-type draft head")
    content = json.loads(path.read_text())
    for key in NEEDED_KEYS:
        if key not in content:
            raise InputError(f"{path}: no {key}; expected that of the head's decoder layer")
    return LlamaConfig.from_dict(content | {"vocab_size": vocabulary, "hidden_size": width, "num_hidden_layers": 1})


def _check(folder: Path, tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Raise InputError at the first tensor that is missing, unknown, or of another shape than the target asks for."""
    for name, wanted in expected.items():
        if name not in tensors:
            raise InputError(f"{folder}: tensor {name} is missing; expected one of shape {tuple(wanted.shape)}")
        if tensors[name].shape != wanted.shape:
            shapes = tuple(tensors[name].shape), tuple(wanted.shape)
            raise InputError(f"{folder}: tensor {name} has shape {shapes[0]}; expected {shapes[1]} for this target")
    for name in tensors:
        if name not in expected:
            raise InputError(f"{folder}: tensor {name} is unknown; expected only {', '.join(expected)}")
