"""Run all benchmarks and print them; what was measured where stands in the titles."""

import argparse
from pathlib import Path

import torch

from engine.decoding.eagle_files import load_head
from engine.decoding.models import DEMO_PAIR, PRECISIONS, load_model
from engine.decoding.sampling import Sampling
from engine.decoding.telemetry import host_facts
from engine.node.prompts import prompts_of
from experiments.batch_rules import OURS
from experiments.bench import batches, drawn, screening, simulator, single, small, worker
from experiments.bench.interleaved import interleaved, show
from experiments.terminal.numbers import not_negative, whole
from fleet.scenario.reading import make_scenario
from fleet.scenario.settle import settle

PARTS = ("small", "simulator", "scale", "screening", "worker", "single", "batches")
WITHOUT_MODELS = PARTS[:5]
PROMPT_TOKENS, NEW_TOKENS, LONGEST_PROMPT = 128, 96, 192


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), help="one of them; else all")
    parser.add_argument("--repetitions", type=whole, default=8, help="of each contest but the one stream")
    parser.add_argument("--prompts", type=whole, default=16, help="decoded one at a time")
    parser.add_argument("--threads", type=whole, default=1, help="of torch, for every contestant")
    parser.add_argument("--depth", type=whole, default=5, help="draft tokens a round")
    parser.add_argument("--temperature", type=not_negative, default=0.0, help="one at a time; 0 is greedy")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="float32")
    parser.add_argument("--figure", type=drawn.figure_file, help="also draw the part scale here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    bench_without_models(options.only, options.repetitions, options.figure)
    if options.only in WITHOUT_MODELS:
        return
    facts, _ = host_facts()
    drafter, large = (load_model("demo", role, options.precision) for role in ("drafter", "target"))
    where = f"{facts.get('gpu', facts['processor'])}, {options.precision}, {options.threads} thread(s)"
    if options.only in (None, "single"):
        decoded = prompts_of(
            settle(make_scenario({"workload": {"requests": options.prompts, "prompt_tokens": PROMPT_TOKENS}}))
        )
        folder = DEMO_PAIR / "eagle"
        head = load_head(folder, large.model, large.dtype, large.device) if folder.is_dir() else None
        sampling = Sampling(options.temperature)
        contestants = single.contestants(decoded, drafter, large, head, options.depth, NEW_TOKENS, sampling)
        show(
            f"demo pair, one stream, temperature {options.temperature:g}, {NEW_TOKENS} new tokens after "
            f"{PROMPT_TOKENS}; {where}",
            "tokens/s", interleaved(contestants, options.prompts, "one stream"), single.OURS,
        )  # fmt: skip
    if options.only in (None, "batches"):
        pool = prompts_of(settle(make_scenario({"workload": {"requests": 64, "prompt_tokens": LONGEST_PROMPT}})))
        for size, turns in batches.bench_batches(
            pool, large, options.depth, options.repetitions, options.precision
        ).items():
            show(
                f"demo pair, batches of {size}, greedy; {where}; host: all that is outside of steps",
                "tokens/s",
                turns,
                OURS,
            )


def bench_without_models(only: str | None, repetitions: int, figure: Path | None) -> None:
    """Run those of the benchmarks that need no models, all or one of them; draw the part scale into `figure`."""
    if only in (None, "small"):
        small.show_small(small.bench_small(repetitions))
    if only in (None, "simulator"):
        for targets in simulator.REQUESTS:
            turns = simulator.bench_simulator(repetitions, targets)
            show(f"simulator, one star of {targets} targets", "rounds/s of processor time", turns, simulator.BARE, True)
    if only in (None, "scale"):
        drawn.tell_scale(figure)
    if only in (None, "screening"):
        turns = screening.bench_screening(repetitions)
        show("screening by equations", "cells/s of processor time", turns, screening.LIKE)
    if only in (None, "worker"):
        worker.show_worker(worker.bench_worker(repetitions))
