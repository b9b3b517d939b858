"""Train the demo target's block drafter on this machine: `python -m tools.demo_pair.train_block`.

PARD's way (An et al. 2025): the demo drafter is trained on, so that mask tokens after a text predict the tokens that
come later, all in one pass. A mask sees the text and the masks before it. It is distilled on what the target says by
itself after training text, half greedily, half at temperature 1. Steps and seed are fixed, not minutes. Settings are
chosen by the score on calibration prompts, written to `training.json` beside the weights. `--evaluate 1` trains
nothing: it measures the folder's drafter and the chain on evaluation prompts, of other files.
"""

import json
import sys
from functools import partial
from itertools import count, islice

import numpy as np
import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from specfleet.engine.demo_pair.corpus import FOLDER
from specfleet.fleet.files import write_file
from tools.demo_pair.train import Texts, continued, load, options_of, own_texts, record_of, save, token_stream, train

BLOCK = 8  # tokens of a block in training
KEPT = 0.75  # of the blocks of a depth, as many as are a token longer: PARD's conditional drop
MASK = "ÿ"  # byte 255, which no text in UTF-8 contains
PROMPT, NEW = 128, 97  # tokens of a prompt, and of the target's own text after it
ROWS = 8  # texts of a step
LEAST_WEIGHT = 0.02  # of a mask that no round reaches
TEXT_WEIGHT = 0.5  # of a text's token, people's included: masks are fewer
DEPTH, MEASURED = 4, 64  # of drafts that are measured, on so many prompts


def blocks_of(length: int, order: torch.Tensor, kept: float = KEPT) -> tuple[torch.Tensor, torch.Tensor]:
    """Return anchors and depths of a text's tokens, then of its masks: (length + masks,) each.

    The anchor of a mask is the last token of the text before its block; its depth counts from there. A token is its own
    anchor, at depth 0. `order`: the anchors of blocks; the first ones have the longest.
    """
    counts = [int(len(order) * kept**depth) for depth in range(1, BLOCK)]
    anchors = torch.cat([torch.arange(length), *(order[:count] for count in counts)])
    return anchors, torch.arange(BLOCK).repeat_interleave(torch.tensor([length, *counts]))


def block_logits(
    drafter: LlamaForCausalLM, tokens: torch.Tensor, anchors: torch.Tensor, depths: torch.Tensor
) -> torch.Tensor:
    """Return the logits after texts' tokens (B, L) and after the masks of their blocks: (B, n, VOCABULARY)."""
    masks = tokens.new_full((len(tokens), len(anchors) - tokens.shape[1]), drafter.config.pard_token)
    text = (depths == 0) & (anchors <= anchors[:, None])
    seen = text | (anchors == anchors[:, None]) & (depths <= depths[:, None])
    fed, places = torch.cat([tokens, masks], 1), (anchors + depths)[None]
    return drafter(input_ids=fed, attention_mask=seen[None, None], position_ids=places, use_cache=False).logits


def block_loss(drafter: LlamaForCausalLM, texts: Texts, rows: torch.Tensor) -> torch.Tensor:
    """-log of the probability that a draft's token is accepted, mean over all tokens and the masks of the target's own.

    A mask counts as often as a round reaches it: the tokens before it in its block are accepted with min(1, q / p).
    """
    tokens, logits = (part[rows] for part in texts)
    length = tokens.shape[1] - 1
    anchors, depths = blocks_of(length, PROMPT - 1 + torch.randperm(NEW))
    anchors, depths = (part[anchors + depths < length] for part in (anchors, depths))
    places = anchors + depths
    q = functional.log_softmax(block_logits(drafter, tokens[:, :-1], anchors, depths), -1)
    p = functional.log_softmax(logits.float(), -1)[:, places]
    with torch.no_grad():
        kept = q.new_zeros(len(rows), BLOCK, length)
        kept[:, depths, anchors] = (q - p).gather(-1, tokens[:, 1:][:, places, None])[..., 0].clamp(max=0)
        reached = torch.cat([torch.zeros_like(kept[:, :1]), kept[:, :-1].cumsum(1)], 1)
        weight = reached[:, depths, anchors].exp().clamp(min=LEAST_WEIGHT)
        weight[:, depths == 0] = TEXT_WEIGHT
    return (weight * -torch.minimum(p, q).exp().sum(-1).log()).sum() / weight.sum()


@torch.inference_mode()
def rounds(drafter: LlamaForCausalLM, texts: Texts, is_greedy: bool, generator: torch.Generator) -> list[np.ndarray]:
    """Return which of a round's DEPTH drafts are accepted, (rounds, DEPTH) for each of the target's own texts.

    A round accepts the text's next token x with probability min(1, q(x) / p(x)). So p(x) and min(p(x), q(x)) are the
    probabilities that x comes next and that it is accepted, as in rejection sampling.
    """
    tokens, logits, length = *texts, texts[1].shape[1]
    anchors = torch.arange(PROMPT, length + 1 - DEPTH)  # the target makes an answer's first token
    places, measured = anchors[:, None] + torch.arange(DEPTH), []
    if getattr(drafter.config, "pard_token", None) is None:
        q = drafter(input_ids=tokens[:, :-1]).logits[:, places]
    else:
        blocks = blocks_of(length, anchors, kept=1.0)
        of_all = torch.cat([block_logits(drafter, part, *blocks) for part in tokens[:, :-1].split(8)])
        masks = of_all[:, length:].unflatten(1, (BLOCK - 1, len(anchors)))
        q = torch.cat([of_all[:, None, anchors], masks[:, : DEPTH - 1]], 1).transpose(1, 2)
    drawn = tokens[:, 1:][:, places, None]
    p, q_drawn = (torch.softmax(part, -1).gather(-1, drawn) for part in (logits.float()[:, places], q))
    drafted = (
        q.argmax(-1, keepdim=True) == drawn if is_greedy else torch.rand(p.shape, generator=generator) < q_drawn / p
    )
    for hits in drafted[..., 0].int().cumprod(-1).numpy():
        begins = [0]
        while (place := begins[-1] + 1 + hits[begins[-1]].sum()) < len(hits):
            begins.append(place)
        measured.append(hits[begins])
    return measured


def measure(target: LlamaForCausalLM, block: LlamaForCausalLM, group: str, seed: int) -> dict[str, list[float]]:
    """Return accepted shares by position and their sum over the chain's, on a group's prompts of every second file."""
    prompts = json.loads((FOLDER / "prompts" / f"{group}.json").read_text())
    files = sorted({prompt["file"] for prompt in prompts})[group == "calibration" :: 2]
    chosen = torch.tensor([prompt["prompt_ids"][:PROMPT] for prompt in prompts if prompt["file"] in files][:MEASURED])
    record = {}
    for way, is_greedy in (("greedy", True), ("temperature 1", False)):
        generator = torch.Generator().manual_seed(seed)
        texts = continued(target, chosen, PROMPT + NEW, torch.full((len(chosen),), is_greedy), generator)
        pair = [rounds(model, texts, is_greedy, generator) for model in (load("drafter"), block)]
        for name, rows in zip(("chain", "block"), pair, strict=True):
            record[f"{way}, {name}"] = np.concatenate(rows).mean(0).round(3).tolist()
        for bonus, name in enumerate(("accepted over the chain's", "with the target's own token")):
            record[f"{way}, {name}"] = _ratio(*pair, bonus)
    return record


def _ratio(chain: list[np.ndarray], block: list[np.ndarray], bonus: int) -> list[float]:
    """Return the ratio of a block's tokens a round to a chain's, and its 95 % interval over prompts (bootstrap)."""
    sums = np.array([[(rows.sum(), len(rows)) for rows in pair] for pair in zip(block, chain, strict=True)])
    drawn = np.random.default_rng(0).integers(len(sums), size=(2000, len(sums)))
    means = [bonus + total[..., 0] / total[..., 1] for total in (sums.sum(0), sums[drawn].sum(1))]
    ratio, ratios = (mean[..., 0] / mean[..., 1] for mean in means)
    return np.round([ratio, *np.quantile(ratios, (0.025, 0.975))], 3).tolist()


def main() -> None:
    """Train the block drafter, write it to the output folder and score it on the selection prompts; or evaluate it."""
    options = options_of(__doc__, FOLDER / "block", steps=1500, batches=16, threads=1, lr=0.02, evaluate=0, seed=5)
    logging.disable_progress_bar()
    target = load("target").eval().requires_grad_(requires_grad=False)
    if options.evaluate:
        figures = measure(target, load(options.out), "evaluation", options.seed)
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    record, drafter = record_of(options, block=BLOCK, kept=KEPT, rows=ROWS, new=NEW), load("drafter")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(FOLDER / "target", local_files_only=True)
    drafter.config.pard_token = tokenizer.convert_tokens_to_ids(MASK)
    made = own_texts(target, token_stream("train"), 128, PROMPT + NEW, options.seed + 2, options.seed)
    tokens, logits = (torch.cat(parts) for parts in zip(*islice(made, options.batches), strict=True))
    rng, halves = np.random.default_rng(options.seed), np.arange(ROWS) % 2  # a half of a step's texts is greedy
    rows = (torch.from_numpy(2 * rng.integers(len(tokens) // 2, size=ROWS) + halves) for _ in count())
    loss = partial(block_loss, drafter, (tokens, logits))
    record["block"] = train(drafter, rows, loss, 0.0, options.lr, "block", options.steps)
    record["sha256"] = save(drafter, options.out)
    record["selection"] = measure(target, load(options.out), "calibration", options.seed)
    write_file(options.out / "training.json", json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
