"""A star of a drafter and targets with the shapes of real models, random weights, and an acceptance that is assumed.

The random weights are made so that a drafter says the target's next token after a stated share of all tokens: both
embed tokens far apart, their layers add little, and their heads map each token to a next one. So each token costs what
it costs in a real pair, and drafts are accepted as assumed. The pair is calibrated, then a real drafter runs with
replayed targets, which wait for the measured times of one. A rerun goes on after what is kept.
"""

import argparse
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

import specfleet
from bench.harness import Aim, Options, Report, Row
from bench.steps import config_of
from specfleet.engine.decoding.models import PRECISIONS, choose_device
from specfleet.experiments.console.printing import remark
from specfleet.fleet.acceptance.models import Geometric
from specfleet.fleet.files import write_file
from specfleet.fleet.records.run import read_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile, read_profile

SHAPES = {"target": "llama-3.1-8b", "drafter": "llama-3.2-1b"}
DEPTH, PROMPT_TOKENS, NEW_TOKENS = 4, 128, 64
ACCEPTED = 0.7  # assumed: the share of tokens after which the drafter is right
ADDED = 0.01  # of what layers with fresh weights add
COUNTS, RUNS, SEEDS = (1, 4, 16), 2, 10
REQUESTS, OF_EACH = 16, 4  # at least, in all and of each target
JUDGED = ("rounds_per_s", "throughput")
MECHANISM_AIM, BLIND_AIM = 1.0, 3.0  # absolute errors in hundredths

OPTIONS: Options = {
    "--precision": {"choices": list(PRECISIONS), "default": "bfloat16"},
    "--counts": {"type": int, "nargs": "*", "default": COUNTS, "help": "numbers of targets"},
    "--tiny": {"action": "store_true", "help": "two layers of the shapes, one run and few simulations"},
}


def study(options: argparse.Namespace) -> Report:
    """Write and calibrate the pair, run its star, and predict each run."""
    folder, profile_file = kept_in(options) / "models", kept_in(options) / "profile.json"
    kept = all(path.exists() for count in options.counts for path in runs_of(count, options))
    if not (kept and profile_file.exists()) and not (folder / "prompts.jsonl").exists():
        write_pair(folder, options.tiny, PRECISIONS[options.precision])
    if not profile_file.exists():
        calibrate(star(folder, options, 1), str(folder / "prompts.jsonl"), profile_file)
    profile = read_profile(str(profile_file), Path())
    rows = [predicted(count, star(folder, options, count, profile), options) for count in options.counts]
    shutil.rmtree(folder, ignore_errors=kept)  # 19 GB; only now, since a rerun reads it
    aims = []
    for quantity in JUDGED:
        for error, most in (("mechanism", MECHANISM_AIM), ("blind", BLIND_AIM)):
            worst = max(abs(row[f"{quantity}: {error}, %"]) for row in rows)
            aims.append(Aim(f"{quantity}: {error}, %, worst", worst, most))
    return Report({f"{' + '.join(SHAPES.values())}, random weights": rows}, aims)


def calibrate(scenario: Scenario, prompts: str, file: Path) -> None:
    """Calibrate the pair into a file; also on a restless host, where the errors show what that costs."""
    specfleet.calibrate(
        scenario, prompts=prompts, quick=True, accept_unsteady=True, out=file, note=remark,
        report=lambda stage: remark(f"calibration: {stage}"),
    )  # fmt: skip


def star(folder: Path, options: argparse.Namespace, targets: int, profile: HardwareProfile | None = None) -> Scenario:
    """Return the star of a real drafter with replayed targets; without a profile, the pair to calibrate."""
    verifiers: dict[str, Any] = {"model": str(folder / "target"), "count": targets}
    tables: dict[str, Any] = {"verifiers": verifiers}
    if profile is not None:
        verifiers["kind"] = "replayed"
        tables |= {"profile": profile, "acceptance": Geometric(ACCEPTED)}
    tokens = {"prompt_tokens": 32, "new_tokens": 24} if options.tiny else {}
    lengths = {"prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS} | tokens
    requests = {"requests": max(REQUESTS, OF_EACH * targets), "prompts": str(folder / "others.jsonl")}
    drafters = {"model": str(folder / "drafter"), "depth": DEPTH}
    return make_scenario(
        {"name": f"N = {targets}", "precision": options.precision, "drafters": drafters, "workload": lengths | requests}
        | tables
    )


def predicted(targets: int, scenario: Scenario, options: argparse.Namespace) -> Row:
    """Run a star, or read its runs, and return its rates with the three errors in hundredths."""
    runs = runs_of(targets, options)
    for path in runs:
        if not path.exists():
            remark(f"{targets} targets: {path.name}")
            specfleet.run(scenario).save(path)
    compared = specfleet.three_errors(runs[0], reruns=runs[1:], seeds=2 if options.tiny else SEEDS)
    found: Row = {"N": targets, "acceptance": f"{ACCEPTED:g}, assumed", "accepted": accepted_share(runs)}
    for row in compared.rows:
        if row.quantity in JUDGED:
            found[row.quantity] = row.engine
            errors = {"mechanism": row.mechanism, "blind": row.parameters, "host": row.host}
            found |= {
                f"{row.quantity}: {name}, %": math.nan if error is None else 100 * error.value
                for name, error in errors.items()
            }
    return found


def kept_in(options: argparse.Namespace) -> Path:
    """Return the folder of what is kept: another one for each precision, and for small shapes."""
    return options.out / f"{options.precision}{'-tiny' * options.tiny}"


def runs_of(targets: int, options: argparse.Namespace) -> list[Path]:
    """Return the files of a star's runs."""
    numbers = range(1, (1 if options.tiny else RUNS) + 1)
    return [kept_in(options) / f"N-{targets}.{number}.parquet" for number in numbers]


def accepted_share(runs: Sequence[Path]) -> float:
    """Return the share of looked-at draft tokens that were accepted: all accepted ones and a refused one are."""
    accepted = looked_at = 0
    for run in runs:
        rows = read_run(run).frame().query("event == 'done' and kind == 'verify'")
        accepted += int(rows.accepted.sum())
        looked_at += int(np.minimum(rows.accepted + 1, DEPTH).sum())
    return accepted / looked_at


def write_pair(folder: Path, tiny: bool, dtype: torch.dtype) -> None:
    """Write target, drafter and two files of prompts; the prompts come last, as a sign that all is there."""
    for seed, (role, name) in enumerate(SHAPES.items()):
        remark(f"{role}: random weights of {name}")
        torch.manual_seed(seed)
        config = config_of(name, tiny)
        config.tie_word_embeddings = False  # a head of its own; a step reads as much
        following = next_tokens(config.vocab_size, 1.0 if role == "target" else ACCEPTED)  # from numbers of the cpu
        with choose_device():
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
            set_next(model, following)
        logging.disable_progress_bar()
        model.save_pretrained(folder / role)
        del model
        torch.cuda.empty_cache()  # for the processes that load it
    rng = np.random.default_rng(0)
    for file in ("others", "prompts"):
        prompts = rng.integers(config.vocab_size, size=(OF_EACH * max(COUNTS), 2 * PROMPT_TOKENS)).tolist()
        lines = b"\n".join(msgspec.json.encode({"prompt_ids": prompt}) for prompt in prompts)
        write_file(folder / f"{file}.jsonl", lines + b"\n")


def next_tokens(vocabulary: int, right: float) -> torch.Tensor:
    """Return the token after each one (vocabulary,): the next number after a share of tokens, chosen at random.

    The others change their next ones in a circle, so that each token still has one of its own.
    """
    numbers = torch.Generator().manual_seed(1)
    wrong = torch.randperm(vocabulary, generator=numbers)[: round((1 - right) * vocabulary)]
    following = (torch.arange(vocabulary) + 1) % vocabulary
    following[wrong] = following[wrong.roll(1)]
    return following


@torch.no_grad()
def set_next(model: PreTrainedModel, following: torch.Tensor) -> None:
    """Let a LLaMA-type model say `following` (vocabulary,) of the last token, whatever came before."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    embedding.normal_()
    head[following.to(head.device)] = embedding
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(ADDED)
        layer.mlp.down_proj.weight.mul_(ADDED)
