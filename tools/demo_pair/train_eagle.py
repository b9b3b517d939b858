"""Train the demo target's EAGLE-style draft head on this machine: `python -m tools.demo_pair.train_eagle`.

It is distilled, half on people's text and half on the target's own, as the drafter is. From the second step of a draft
on, the head reads its own output, so training does that too: `unrolled` runs every position as the end of a draft of
each length. What was done is written to `training.json` beside the weights.
"""

import argparse
import hashlib
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import transformers
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from engine.decoding.eagle import AnyHead, Eagle3Head, EagleHead
from engine.decoding.eagle_files import load_head, save_head, tapped_layers
from engine.demo_pair.corpus import FOLDER
from fleet.files import write_file
from tools.demo_pair.corpus import token_stream
from tools.demo_pair.train import BATCH, LENGTH, Loss, mixed, own_text, train

STEPS = 2  # draft steps that training unrolls; a third bought nothing in the same minutes
MEASURED_STEPS = 5
FEATURE_WEIGHT = 0.1  # of the smooth L1 beside the KL, which is what acceptance depends on
EMBEDDING_SCALE = 15  # features are that much larger than embeddings, and Muon updates both halves of a matrix alike
OWN_TEXT_SHARE = 0.15  # of the minutes


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


def new_head3(target: LlamaForCausalLM) -> Eagle3Head:
    """Build an untrained EAGLE-3 head with the target's whole vocabulary.

    It begins as a guess by the newest tapped layer alone, through the target's own norm and LM head.
    """
    settings = target.config.to_dict() | {"num_hidden_layers": 1, "bias": False, "tie_word_embeddings": False}
    config, layers, width = LlamaConfig.from_dict(settings), target.config.num_hidden_layers, target.config.hidden_size
    taps = tapped_layers({}, layers, "the demo target")
    head = Eagle3Head(config, taps, width, config.vocab_size, target.get_input_embeddings())
    with torch.no_grad():
        head.fc.weight.zero_()
        head.fc.weight[:, -width:] = torch.eye(width)
        head.norm.weight.copy_(target.model.norm.weight)
        head.lm_head.weight.copy_(target.lm_head.weight)
    return head


def draft_mask(length: int, step: int) -> torch.Tensor:
    """Return what each position sees as the end of a draft of `step` + 1 tokens: (1, 1, length, (step + 1) * length).

    The keys of all steps lie one after another. Of the first step's, which come from the target's features, a
    position sees those up to the draft's first; of a later step's only the one that belongs to the same draft.
    """
    behind = torch.arange(length)[:, None] - torch.arange(length)  # (queries, keys)
    blocks = [behind >= step, *(behind == step - later for later in range(1, step + 1))]
    return torch.cat(blocks, dim=1)[None, None]


def unrolled(head: AnyHead, tokens: torch.Tensor, features: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    """Yield for every draft step the estimated features (B, L - 1 - step, hidden) of positions `step` + 1 to L - 1.

    `tokens` and `features` are those of positions 0 to L - 1: (B, L), (B, L, hidden). Gradients flow through the
    estimates that are fed back.
    """
    following, given = tokens[:, 1:], features[:, :-1]
    length = following.shape[1]
    positions, cache = torch.arange(length).expand_as(following), DynamicCache()
    for step in range(steps):
        estimates = head(following, given, cache, positions, draft_mask(length, step) if step else None)
        yield estimates[:, step:]  # no draft of this length ends before
        given = torch.cat([given[:, :1], estimates[:, :-1]], dim=1)


@torch.no_grad()
def states_and_logits(head: AnyHead, target: LlamaForCausalLM, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what the head reads of the target at `tokens` (B, L), and the target's logits there."""
    output = target.model(input_ids=tokens, output_hidden_states=bool(head.taps))
    last = output.last_hidden_state
    states = torch.cat([output.hidden_states[layer] for layer in head.taps], -1) if head.taps else last
    return states, target.lm_head(last)


def logits_of(head: AnyHead, target: LlamaForCausalLM, estimates: torch.Tensor) -> torch.Tensor:
    """Return the head's logits of its estimates, by its own LM head or the target's."""
    own = head.own_logits(estimates)
    return target.lm_head(estimates) if own is None else own


def head_loss(head: AnyHead, target: LlamaForCausalLM) -> Loss:
    """KL(target || head) a token, in nats; mean over the unrolled steps.

    For a head that reads the target's last hidden state, beside it the smooth L1 of the features. What EAGLE-3 feeds
    back need not be like anything of the target's.
    """

    def loss(batch: torch.Tensor) -> torch.Tensor:
        tokens = batch[:, :-1]
        states, logits = states_and_logits(head, target, tokens)
        wanted = functional.log_softmax(logits, -1)
        terms = []
        for step, estimates in enumerate(unrolled(head, tokens, head.read(states), STEPS), start=1):
            given = functional.log_softmax(logits_of(head, target, estimates), -1).flatten(0, 1)
            kl = functional.kl_div(given, wanted[:, step:].flatten(0, 1), log_target=True, reduction="batchmean")
            apart = 0.0 if head.taps else functional.smooth_l1_loss(estimates, states[:, step:])
            terms.append(kl + FEATURE_WEIGHT * apart)
        return torch.stack(terms).mean()

    return loss


@torch.inference_mode()
def evaluate_head(target: LlamaForCausalLM, head: AnyHead, stream: np.ndarray) -> dict[str, list[float]]:
    """Teacher-forced figures of every draft step on held-out text: agreement of the best tokens, sum of min(p, q).

    The text is that of `tools.demo_pair.train.evaluate`, which gives the drafter's.
    """
    windows = torch.from_numpy(stream[: 64 * (LENGTH + 1)].reshape(64, LENGTH + 1))
    agreement, acceptance = [], []
    for batch in windows.split(8):
        states, logits = states_and_logits(head, target, batch[:, :-1])
        p = torch.softmax(logits, -1)
        q = [
            torch.softmax(logits_of(head, target, estimates), -1)
            for estimates in unrolled(head, batch[:, :-1], head.read(states), MEASURED_STEPS)
        ]
        pairs = [(p[:, step:], given) for step, given in enumerate(q, start=1)]
        agreement.append([(a.argmax(-1) == b.argmax(-1)).float().mean().item() for a, b in pairs])
        acceptance.append([torch.minimum(a, b).sum(-1).mean().item() for a, b in pairs])
    return {
        "top1_agreement": np.mean(agreement, axis=0).round(4).tolist(),
        "acceptance": np.mean(acceptance, axis=0).round(4).tolist(),
    }


def main() -> None:
    """Train the head and write it to the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--threads", type=int, default=1)
    # Muon's steps have a fixed length: many at this rate carry weights too far, so a longer run needs a lower one.
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--three", action="store_true", help="an EAGLE-3 head, into engine/demo_pair/eagle3")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.out = options.out or FOLDER / ("eagle3" if options.three else "eagle")
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    logging.disable_progress_bar()
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    settings |= {"batch": BATCH, "length": LENGTH, "steps": STEPS}
    settings |= {"feature_weight": FEATURE_WEIGHT, "embedding_scale": EMBEDDING_SCALE}
    report: dict[str, object] = {
        "settings": settings,
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__
        },
    }  # fmt: skip

    folder = FOLDER / "target"
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    target.eval().requires_grad_(requires_grad=False)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True).backend_tokenizer
    stream, held_out = token_stream(tokenizer, "train"), token_stream(tokenizer, "held-out")
    own = own_text(target, stream, OWN_TEXT_SHARE * options.minutes, options.seed)
    report["own_text_tokens"] = int(own.size)
    head, text = (new_head3 if options.three else new_head)(target), mixed(stream, own, options.seed + 1)
    minutes = (1 - OWN_TEXT_SHARE) * options.minutes
    report["head"] = train(head, text, head_loss(head, target), minutes, options.lr, "head")
    if isinstance(head, EagleHead):
        fold(head, target)
    save_head(head, options.out)
    report["held_out"] = evaluate_head(target, load_head(options.out, target, torch.float32, "cpu"), held_out)
    weights = (options.out / "model.safetensors").read_bytes()
    report["sha256"] = hashlib.sha256(weights).hexdigest()
    write_file(options.out / "training.json", json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
