"""Train the demo target's EAGLE-style draft head on this machine: `python -m tools.demo_pair.train_eagle`.

It is distilled, half on people's text and half on the target's own, as the drafter is. From the second step of a draft
on, the head reads its own output, so training does that too: `unrolled` runs every position as the end of a draft of
each length. What was done is written to `training.json` beside the weights.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch.nn import functional
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.utils import logging

from specfleet.engine.decoding.eagle import EagleHead
from specfleet.engine.decoding.eagle_files import load_head, own_tensors
from specfleet.engine.demo_pair.corpus import FOLDER
from specfleet.fleet.files import write_file
from tools.demo_pair.train import (
    checksum,
    held_out_windows,
    likeness,
    load,
    mixed,
    options_of,
    own_text,
    record_of,
    token_stream,
    train,
)

STEPS = 2  # draft steps that training unrolls; a third bought nothing in the same minutes
MEASURED_STEPS = 5
FEATURE_WEIGHT = 0.1  # of the smooth L1 beside the KL, which is what acceptance depends on
EMBEDDING_SCALE = 15  # features are that much larger than embeddings, and Muon updates both halves of a matrix alike
OWN_TEXT_SHARE = 0.15  # of the minutes
WRITTEN_KEYS = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "hidden_act", "max_position_embeddings", "rms_norm_eps", "attention_bias", "mlp_bias",
)  # fmt: skip


def new_head(target: LlamaForCausalLM) -> EagleHead:
    """Build an untrained head that reads the target's embedding enlarged; `fold` ends that."""
    settings = target.config.to_dict() | {"num_hidden_layers": 1, "bias": True}
    enlarged = EMBEDDING_SCALE * target.get_input_embeddings().weight.detach()
    return EagleHead(LlamaConfig.from_dict(settings), torch.nn.Embedding.from_pretrained(enlarged, freeze=True))


@torch.no_grad()
def fold(head: EagleHead, target: LlamaForCausalLM) -> None:
    """Move the enlargement of the embedding into the head's linear layer: the same function of the target's own."""
    head.fc.weight[:, : head.config.hidden_size] *= EMBEDDING_SCALE
    head.embed_tokens = target.get_input_embeddings()


def save_head(head: EagleHead, folder: Path) -> None:
    """Write `head` in the published layout, weights in half precision."""
    config = head.config
    content = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "dtype": "float16"}
    content |= {key: getattr(config, key) for key in WRITTEN_KEYS}
    content |= {"bias": head.fc.bias is not None, "rope_theta": config.rope_parameters["rope_theta"]}
    tensors = {name: tensor.half().contiguous() for name, tensor in own_tensors(head).items()}
    write_file(folder / "config.json", json.dumps(content, indent=2) + "\n")
    write_file(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))


def draft_mask(length: int, step: int) -> torch.Tensor:
    """Return what each position sees as the end of a draft of `step` + 1 tokens: (1, 1, length, (step + 1) * length).

    The keys of all steps lie one after another. Of the first step's, which come from the target's features, a
    position sees those up to the draft's first; of a later step's only the one that belongs to the same draft.
    """
    behind = torch.arange(length)[:, None] - torch.arange(length)  # (queries, keys)
    blocks = [behind >= step, *(behind == step - later for later in range(1, step + 1))]
    return torch.cat(blocks, dim=1)[None, None]


def estimates_of(
    head: EagleHead,
    tokens: torch.Tensor,
    features: torch.Tensor,
    cache: Cache | None,
    positions: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Estimate the features of the following positions with gradients: (B, T, hidden).

    - `features` (B, T, hidden): those of `positions` (B, T).
    - `tokens` (B, T): the tokens that follow them.
    - `mask` (B or 1, 1, T, cached + T): None is causal, after all cached tokens.
    """
    stream, _ = head.entry(tokens, features)
    return head.layers[0](
        stream,
        attention_mask=create_causal_mask(head.config, stream, mask, cache),
        position_ids=positions,
        past_key_values=cache,
        position_embeddings=head.rotary_emb(stream, positions),
    )


def unrolled(head: EagleHead, tokens: torch.Tensor, features: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    """Yield for every draft step the estimated features (B, L - 1 - step, hidden) of positions `step` + 1 to L - 1.

    `tokens` and `features` are those of positions 0 to L - 1: (B, L), (B, L, hidden). Gradients flow through the
    estimates that are fed back.
    """
    following, given = tokens[:, 1:], features[:, :-1]
    length = following.shape[1]
    positions, cache = torch.arange(length).expand_as(following), DynamicCache()
    for step in range(steps):
        mask = draft_mask(length, step) if step else None
        estimates = estimates_of(head, following, given, cache, positions, mask)
        yield estimates[:, step:]  # no draft of this length ends before
        given = torch.cat([given[:, :1], estimates[:, :-1]], dim=1)


def head_loss(head: EagleHead, target: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """KL(target || head) a token, in nats, beside the smooth L1 of the features; mean over the unrolled steps."""
    tokens = batch[:, :-1]
    with torch.no_grad():
        features = target.model(input_ids=tokens).last_hidden_state
        wanted = functional.log_softmax(target.lm_head(features), -1)
    terms = []
    for step, estimates in enumerate(unrolled(head, tokens, features, STEPS), start=1):
        given = functional.log_softmax(target.lm_head(estimates), -1).flatten(0, 1)
        kl = functional.kl_div(given, wanted[:, step:].flatten(0, 1), log_target=True, reduction="batchmean")
        terms.append(kl + FEATURE_WEIGHT * functional.smooth_l1_loss(estimates, features[:, step:]))
    return torch.stack(terms).mean()


@torch.inference_mode()
def evaluate_head(target: LlamaForCausalLM, head: EagleHead, stream: np.ndarray) -> dict[str, list[float]]:
    """Teacher-forced figures of every draft step, on the text of `tools.demo_pair.train.evaluate` for the drafter."""
    rows = []
    for batch in held_out_windows(stream):
        tokens = batch[:, :-1]
        features = target.model(input_ids=tokens).last_hidden_state
        p = torch.softmax(target.lm_head(features), -1)
        steps = enumerate(unrolled(head, tokens, features, MEASURED_STEPS), start=1)
        rows.append([likeness(p[:, step:], torch.softmax(target.lm_head(q), -1)) for step, q in steps])
    agreement, acceptance = np.mean(rows, axis=0).round(4).T.tolist()
    return {"top1_agreement": agreement, "acceptance": acceptance}


def main() -> None:
    """Train the head and write it to the output folder."""
    # Muon's steps have a fixed length: many at this rate carry weights too far, so a longer run needs a lower one.
    options = options_of(__doc__, FOLDER / "eagle", minutes=7.0, threads=1, lr=0.05)
    logging.disable_progress_bar()
    record = record_of(options, steps=STEPS, feature_weight=FEATURE_WEIGHT, embedding_scale=EMBEDDING_SCALE)
    target = load("target").eval().requires_grad_(requires_grad=False)
    stream, held_out = token_stream("train"), token_stream("held-out")
    own = own_text(target, stream, OWN_TEXT_SHARE * options.minutes, options.seed)
    record["own_text_tokens"] = int(own.size)
    head, text = new_head(target), mixed(stream, own, options.seed + 1)
    minutes = (1 - OWN_TEXT_SHARE) * options.minutes
    record["head"] = train(head, text, partial(head_loss, head, target), minutes, options.lr, "head")
    fold(head, target)
    save_head(head, options.out)
    record["held_out"] = evaluate_head(target, load_head(options.out, target, torch.float32, "cpu"), held_out)
    record["sha256"] = checksum(options.out)
    write_file(options.out / "training.json", json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
