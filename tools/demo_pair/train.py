"""Train the demo pair on this machine: the target, then a drafter distilled from the target.

`python -m tools.demo_pair.train` takes about three quarters of an hour on two cores. Budgets are minutes, not steps,
so a faster machine trains a better pair; what was done is written to `training.json` beside the weights.

The text is the Python standard library's own sources, held out by file: every Python installation has it, so no
download is needed. A hash of its path decides whether a file is held out. The tokenizer and the prompts are committed
and stay as they are: the library's text differs between versions of Python.
"""

import argparse
import hashlib
import json
import platform
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import transformers
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specfleet.engine.demo_pair.corpus import FOLDER
from specfleet.fleet.files import write_file

Split = Literal["train", "held-out"]

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "ensurepip", "__pycache__", "turtledemo"}
HELD_OUT_SHARE = 0.12  # of the files


def split_of(relative: str) -> Split:
    """Return which group a file belongs to, from its path in the library."""
    share = int.from_bytes(hashlib.sha256(relative.encode()).digest()[:4]) / 2**32
    return "held-out" if share < HELD_OUT_SHARE else "train"


def texts(split: Split) -> Iterator[str]:
    """Yield the texts of a group's files, in order of path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if LEFT_OUT.isdisjoint(relative.parts) and split_of(relative.as_posix()) == split:
            text = path.read_text(encoding="utf-8", errors="ignore")
            if text.strip():
                yield text


def token_stream(split: Split) -> np.ndarray:
    """Return a group's text as one array of token ids (tokens,), files joined by the end-of-text token."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(FOLDER / "target", local_files_only=True)
    encode = tokenizer.backend_tokenizer.encode
    pieces = [np.array([tokenizer.eos_token_id, *encode(text).ids], dtype=np.int64) for text in texts(split)]
    return np.concatenate(pieces)


VOCABULARY = 512  # a small one spends the parameters on layers
LENGTH = 256  # tokens of a training sequence
BATCH = 16  # sequences of a step
TARGET = {"num_hidden_layers": 16, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 384}
DRAFTER = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 352}
Batches = Iterator[torch.Tensor]
Texts = tuple[torch.Tensor, torch.Tensor]
"""Token ids (B, L), and the target's logits (B, L - 1, VOCABULARY) after all but the last, in half precision."""
Loss = Callable[[torch.Tensor], torch.Tensor]


def llama(shape: dict[str, int]) -> LlamaForCausalLM:
    """Build an untrained model; deep and narrow, so that a step costs enough to be worth speculating on."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, num_key_value_heads=1, max_position_embeddings=2048, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, **shape,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def batches(stream: np.ndarray, seed: int) -> Batches:
    """Yield random windows of the text for ever: (BATCH, LENGTH + 1) token ids."""
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(len(stream) - LENGTH - 1, size=BATCH)
        yield torch.from_numpy(np.stack([stream[start : start + LENGTH + 1] for start in starts]))


def next_token_loss(model: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next token, in nats."""
    logits = model(input_ids=batch[:, :-1]).logits
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def distillation_loss(student: LlamaForCausalLM, teacher: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) a token, in nats."""
    with torch.inference_mode():
        wanted = functional.log_softmax(teacher(input_ids=batch[:, :-1]).logits, -1).flatten(0, 1)
    given = functional.log_softmax(student(input_ids=batch[:, :-1]).logits, -1).flatten(0, 1)
    return functional.kl_div(given, wanted.clone(), log_target=True, reduction="batchmean")


def train(
    model: torch.nn.Module, source: Batches, loss: Loss, minutes: float, lr: float, name: str, last: int = 0
) -> dict[str, object]:
    """Train for `minutes` of wall time, or for `last` steps: warm up, then decay to zero. Return what was done."""
    by_name = dict(model.named_parameters())
    tables = {key for key, weight in by_name.items() if weight.ndim != 2 or "embed" in key or "lm_head" in key}
    hidden = [weight for key, weight in by_name.items() if key not in tables]
    others = [weight for key, weight in by_name.items() if key in tables]
    optimisers = [
        torch.optim.Muon(hidden, lr=lr, weight_decay=0.0),
        torch.optim.AdamW(others, lr=lr / 5, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    rates = [optimiser.param_groups[0]["lr"] for optimiser in optimisers]
    started_s, steps, rows, curve, smooth = time.monotonic(), 0, 0, [], None
    while (progress := steps / last if last else (time.monotonic() - started_s) / (60 * minutes)) < 1:
        for optimiser, rate in zip(optimisers, rates, strict=True):
            optimiser.param_groups[0]["lr"] = rate * min(1, (steps + 1) / 50, 1.25 * (1 - progress))
        batch = next(source)
        value = loss(batch)
        value.backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        steps += 1
        rows += len(batch)
        smooth = value.item() if smooth is None else 0.95 * smooth + 0.05 * value.item()
        if steps % 25 == 0:
            curve.append([steps, round(smooth, 4)])
            sys.stderr.write(f"{name}: step {steps}, {100 * progress:.0f} %, loss {smooth:.3f}\n")
    minutes = round((time.monotonic() - started_s) / 60, 1)
    return {"minutes": minutes, "steps": steps, "rows": rows, "lr": lr, "loss_curve": curve}


@torch.inference_mode()
def continued(
    teacher: LlamaForCausalLM, text: torch.Tensor, length: int, is_greedy: torch.Tensor, generator: torch.Generator
) -> Texts:
    """Let the target continue texts (B, L) by itself to `length` tokens, greedily or at temperature 1."""
    cache, fed, kept = None, text, []
    while text.shape[1] < length:
        output = teacher(input_ids=fed, past_key_values=cache, use_cache=True)
        cache, logits = output.past_key_values, output.logits[:, -1]
        sampled = torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)
        fed = torch.where(is_greedy[:, None], logits.argmax(-1, keepdim=True), sampled)
        text = torch.cat([text, fed], dim=1)
        kept.append(output.logits.half())
    return text, torch.cat(kept, 1)


def own_texts(teacher: LlamaForCausalLM, stream: np.ndarray, rows: int, length: int, *seeds: int) -> Iterator[Texts]:
    """Let the target continue 128 tokens of training text for ever, `rows` at a time, every second one greedily."""
    rng, generator = np.random.default_rng(seeds[0]), torch.Generator().manual_seed(seeds[1])
    while True:
        starts = rng.integers(len(stream) - 128, size=rows)
        text = torch.from_numpy(np.stack([stream[start : start + 128] for start in starts]))
        yield continued(teacher, text, length, torch.arange(rows) % 2 == 0, generator)


def own_text(teacher: LlamaForCausalLM, stream: np.ndarray, minutes: float, seed: int) -> np.ndarray:
    """Return the target's own texts of so many minutes, (sequences, LENGTH + 1): a drafter speculates on such texts."""
    texts, sequences, started_s = own_texts(teacher, stream, 64, LENGTH + 1, seed, seed), [], time.monotonic()
    while time.monotonic() - started_s < 60 * minutes:
        sequences.append(next(texts)[0].numpy())
    return np.concatenate(sequences)


def mixed(stream: np.ndarray, own: np.ndarray, seed: int) -> Batches:
    """Yield batches that are half people's text, half the target's own."""
    rng = np.random.default_rng(seed)
    for people in batches(stream, seed):
        chosen = torch.from_numpy(own[rng.integers(len(own), size=BATCH // 2)])
        yield torch.cat([people[: BATCH // 2], chosen])


def held_out_windows(stream: np.ndarray) -> Sequence[torch.Tensor]:
    """Return the held-out text that figures are measured on, in batches (8, LENGTH + 1)."""
    return torch.from_numpy(stream[: 64 * (LENGTH + 1)].reshape(64, LENGTH + 1)).split(8)


def likeness(p: torch.Tensor, q: torch.Tensor) -> tuple[float, float]:
    """Return how often the best tokens of distributions (..., VOCABULARY) agree, and the mean sum of min(p, q)."""
    return (p.argmax(-1) == q.argmax(-1)).float().mean().item(), torch.minimum(p, q).sum(-1).mean().item()


@torch.inference_mode()
def evaluate(target: LlamaForCausalLM, drafter: LlamaForCausalLM, stream: np.ndarray) -> dict[str, float]:
    """Teacher-forced figures on held-out text: perplexities, agreement of the best tokens, acceptance sum min(p, q)."""
    rows = []
    for batch in held_out_windows(stream):
        p, q = (functional.log_softmax(model(input_ids=batch[:, :-1]).logits, -1) for model in (target, drafter))
        nats = [functional.nll_loss(logs.flatten(0, 1), batch[:, 1:].flatten()).item() for logs in (p, q)]
        rows.append([*nats, *likeness(p.exp(), q.exp())])
    means = np.mean(rows, axis=0)
    figures = [*np.exp(means[:2]), *means[2:]]
    names = ("target_perplexity", "drafter_perplexity", "top1_agreement", "acceptance")
    return {name: round(float(figure), 4) for name, figure in zip(names, figures, strict=True)}


def load(role: str) -> LlamaForCausalLM:
    """Load a model of the demo pair in float32."""
    return AutoModelForCausalLM.from_pretrained(FOLDER / role, dtype=torch.float32, local_files_only=True)


def save(model: LlamaForCausalLM, folder: Path) -> str:
    """Write a Hugging Face folder with weights in half precision and the tokenizer; return the weights' checksum."""
    with tempfile.TemporaryDirectory() as draft:
        model.half().save_pretrained(draft)
        model.float()
        for file in (*Path(draft).iterdir(), *FOLDER.glob("target/tokenizer*.json")):
            if file.name != "generation_config.json":
                write_file(folder / file.name, file.read_bytes())
    return checksum(folder)


def checksum(folder: Path) -> str:
    """Return the checksum of a folder's weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def options_of(description: str | None, folder: Path, **defaults: float) -> argparse.Namespace:
    """Read the options of a program, numbers with these defaults beside the seed and the output folder."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in {"seed": 20261121, **defaults}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--out", type=Path, default=folder)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    return options


def record_of(options: argparse.Namespace, **constants: float) -> dict[str, object]:
    """Begin the record of a training: its settings, and the versions of what it ran on."""
    settings = {name: value for name, value in vars(options).items() if name != "out"}
    return {
        "settings": settings | {"batch": BATCH, "length": LENGTH} | constants,
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__
        },
    }  # fmt: skip


def main() -> None:
    """Train everything and write it to the output folder."""
    options = options_of(__doc__, FOLDER, minutes_target=28.0, minutes_drafter=14.0, threads=2)
    record, seed = record_of(options, vocabulary=VOCABULARY), options.seed
    stream, held_out = token_stream("train"), token_stream("held-out")
    record["training_tokens_available"] = len(stream)

    target, drafter = llama(TARGET), llama(DRAFTER)
    text, minutes = batches(stream, seed), options.minutes_drafter
    record["target"] = train(target, text, partial(next_token_loss, target), options.minutes_target, 0.02, "target")
    checksums = {"target": save(target, options.out / "target")}
    target.eval()
    record["drafter_on_text"] = train(drafter, text, partial(next_token_loss, drafter), 0.15 * minutes, 0.02, "drafter")
    own = own_text(target, stream, 0.25 * minutes, seed)
    record["own_text_tokens"] = int(own.size)
    text, loss = mixed(stream, own, seed + 1), partial(distillation_loss, drafter, target)
    record["drafter_distilled"] = train(drafter, text, loss, 0.6 * minutes, 0.02, "distillation")
    checksums["drafter"] = save(drafter, options.out / "drafter")
    record["held_out"] = evaluate(target, drafter.eval(), held_out)
    record["sha256"] = checksums
    write_file(options.out / "training.json", json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
