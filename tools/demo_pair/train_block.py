"""Train the demo target's block drafter on this machine: `python -m tools.demo_pair.train_block`.

PARD's way (An et al. 2025): the demo drafter is trained on, so that mask tokens after a text predict the tokens that
come later, all in one pass. A mask sees the text and the masks before it. It is distilled, half on people's text and
half on the target's own, as the drafter is. What was done is written to `training.json` beside the weights.
"""

import json

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast

from specfleet.engine.demo_pair.corpus import FOLDER
from specfleet.fleet.files import write_file
from tools.demo_pair.train import by_depth, distilled, held_out_windows, likeness, options_of, record_of, save

BLOCK = 8  # tokens of a block in training
KEPT = 0.6  # of the blocks of a depth, as many as are a token longer: PARD's conditional drop, which saves half
LEAST_KEPT = 0.2
MASK = "ÿ"  # byte 255, which no text in UTF-8 contains
OWN_TEXT_SHARE = 0.1  # of the minutes


def blocks_of(length: int, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return anchors and depths of a text's tokens, then of its masks: (length + masks,) each.

    The anchor of a mask is the last token of the text before its block; its depth counts from there. A token is its own
    anchor, at depth 0. `order` (length,): anchors; the first ones have the longest blocks.
    """
    counts = [int(length * max(KEPT**depth, LEAST_KEPT)) for depth in range(1, BLOCK)]
    anchors = torch.cat([torch.arange(length), *(order[:count] for count in counts)])
    return anchors, torch.arange(BLOCK).repeat_interleave(torch.tensor([length, *counts]))


def block_mask(anchors: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
    """Return what tokens and masks see, (1, 1, n, n): the text up to the anchor, and their block up to themselves."""
    text = (depths == 0) & (anchors <= anchors[:, None])
    block = (anchors == anchors[:, None]) & (depths <= depths[:, None])
    return (text | block)[None, None]


def block_logits(
    drafter: LlamaForCausalLM, tokens: torch.Tensor, anchors: torch.Tensor, depths: torch.Tensor
) -> torch.Tensor:
    """Return the logits after texts' tokens (B, L) and after the masks of their blocks: (B, n, VOCABULARY)."""
    masks = tokens.new_full((len(tokens), len(anchors) - tokens.shape[1]), drafter.config.pard_token)
    output = drafter(
        input_ids=torch.cat([tokens, masks], 1),
        attention_mask=block_mask(anchors, depths),
        position_ids=(anchors + depths)[None],
        use_cache=False,
    )
    return output.logits


def block_loss(drafter: LlamaForCausalLM, target: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """KL(target || drafter) in nats, mean over all tokens and masks with a text that long; every second row of a batch.

    Half of the rows in half precision take a third of the time, so there are three times as many steps.
    """
    tokens = batch[::2, :-1]
    anchors, depths = blocks_of(tokens.shape[1], torch.randperm(tokens.shape[1]))
    inside = anchors + depths < tokens.shape[1]
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            wanted = target(input_ids=tokens).logits.float()[:, (anchors + depths)[inside]]
        given = block_logits(drafter, tokens, anchors, depths)[:, inside].float()
    given, wanted = (functional.log_softmax(logits, -1).flatten(0, 1) for logits in (given, wanted))
    return functional.kl_div(given, wanted, log_target=True, reduction="batchmean")


@torch.inference_mode()
def evaluate_block(target: LlamaForCausalLM, drafter: LlamaForCausalLM, stream: np.ndarray) -> dict[str, list[float]]:
    """Teacher-forced figures of every depth, on the text of `tools.demo_pair.train.evaluate` for the drafter."""
    rows = []
    for batch in held_out_windows(stream):
        tokens = batch[:, :-1]
        anchors, depths = blocks_of(tokens.shape[1], torch.randperm(tokens.shape[1]))
        p = torch.softmax(target(input_ids=tokens).logits, -1)
        q = torch.softmax(block_logits(drafter, tokens, anchors, depths), -1)
        inside = [(depths == depth) & (anchors + depth < tokens.shape[1]) for depth in range(BLOCK)]
        rows.append([likeness(p[:, (anchors + depths)[of]], q[:, of]) for of in inside])
    return by_depth(rows)


def new_drafter(_target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Load the demo drafter in float32, which knows the mask."""
    drafter = AutoModelForCausalLM.from_pretrained(FOLDER / "drafter", dtype=torch.float32, local_files_only=True)
    drafter.config.pard_token = tokenizer.convert_tokens_to_ids(MASK)
    return drafter


def main() -> None:
    """Train the block drafter and write it to the output folder."""
    options = options_of(__doc__, FOLDER / "block", minutes=18.0, threads=1, lr=0.02)
    record = record_of(options, block=BLOCK, kept=KEPT, least_kept=LEAST_KEPT)
    target, drafter, held_out = distilled(options, record, "block", OWN_TEXT_SHARE, new_drafter, block_loss)
    record["sha256"] = save(drafter, options.out)
    record["held_out"] = evaluate_block(target, drafter.eval(), held_out)
    write_file(options.out / "training.json", json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
