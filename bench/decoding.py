"""Tokens a second of the demo pair: every way to draft beside transformers' own ways, and batches by rule and size.

Contestants decode the same prompts in turn. On a cuda device `--eager` leaves out CUDA graphs.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count

import numpy as np
import torch
from transformers import GenerationConfig

import specfleet
from bench.batch_rules import OURS, RULES, rule_of
from bench.contest import compared
from bench.harness import Case, Report, Row, run
from bench.laws import drafters_of
from engine.decoding.decode import decode_plain, decode_speculatively
from engine.decoding.draft import Drafter
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import PRECISIONS, CausalLM, load_model
from engine.decoding.sampling import Sampling
from engine.decoding.verify import Target
from engine.demo_pair.corpus import read_prompts

CHAIN = "ours, chain"
RATE, LENGTH = "tokens/s", "accepted a round + 1"
PROMPT_TOKENS, NEW_TOKENS, LOOKUP_TOKENS = 128, 96, 5
SIZES = (1, 2, 4, 8, 16)
Work = Callable[[int], Row]
"""Decodes prompt i and returns its rate."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    parser.add_argument("--prompts", type=int, default=16, help="prompts that are decoded one at a time")
    parser.add_argument("--repetitions", type=int, default=8, help="runs of each batch")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="rows of the batches; none for no batches")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, for every contestant")
    parser.add_argument("--depth", type=int, default=5, help="draft tokens of a round")
    parser.add_argument("--temperature", type=float, default=0.0, help="of one stream; 0 is greedy")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="float32")
    parser.add_argument("--device", default="", help="cpu or cuda; left out, cuda where there is one")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs, for one stream")


def study(options: argparse.Namespace) -> Report:
    """Decode one stream at a time, then batches."""
    torch.set_num_threads(options.threads)
    small, large = (
        load_model("demo", role, options.precision, *filter(None, [options.device])) for role in ("drafter", "target")
    )
    if options.eager:
        small.graphs = large.graphs = None
    prompts = [prompt[:PROMPT_TOKENS] for prompt in read_prompts("evaluation")[: options.prompts]]
    sampling = Sampling(options.temperature)
    works = ours(prompts, small, large, options.depth, sampling) | theirs(
        prompts, small, large, options.depth, sampling
    )
    device = torch.cuda.get_device_name() if large.device.type == "cuda" else "cpu"
    where = f"{device}, {options.precision}, {options.threads} threads"
    tables = {f"one stream, {where}": contest(works, options.prompts, RATE, CHAIN)}
    for size in options.sizes:
        rules = {rule: batch_work(rule, size, options.depth, options.precision) for rule in RULES}
        tables[f"batches of {size}, {where}"] = contest(rules, options.repetitions, RATE, OURS)
    return Report(tables)


def contest(works: dict[str, Work], repetitions: int, unit: str, base: str) -> list[Row]:
    """Let every contestant decode prompt i before any decodes prompt i + 1; the first, a cold one, is decoded twice."""

    def in_turn(work: Work, numbers: Iterable[int]) -> Callable[[], Row]:
        numbered = iter(numbers)
        return lambda: work(next(numbered))

    cases = [Case(name, in_turn(work, chain([0], count()))) for name, work in works.items()]
    return compared(run(cases, repetitions, cold=1), unit, base)


def timed_row(decode: Callable[[], tuple[int, Sequence[int]]], device: torch.device) -> Row:
    """Decode; return new tokens a second, and mean accepted draft tokens of a round plus 1, if there were rounds."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    wait()
    started_s = time.perf_counter()
    tokens, accepted = decode()
    wait()
    row = {RATE: tokens / (time.perf_counter() - started_s)}
    return row | {LENGTH: 1 + float(np.mean(accepted)) if accepted else float("nan")}


def ours(
    prompts: Sequence[list[int]],
    small: CausalLM,
    large: CausalLM,
    depth: int,
    sampling: Sampling,
    new_tokens: int = NEW_TOKENS,
) -> dict[str, Work]:
    """Return all of the engine's ways to decode."""
    cache = large.new_cache()

    def plain(number: int) -> tuple[int, Sequence[int]]:
        return len(decode_plain(Target(large, cache=cache), prompts[number], new_tokens, sampling, number)), ()

    def speculative(number: int, drafter: Drafter | LookupDrafter) -> tuple[int, Sequence[int]]:
        target = Target(large, drafter.rule, cache)
        tokens, accepted = decode_speculatively(target, drafter, prompts[number], new_tokens, depth, sampling, number)
        return len(tokens), accepted

    def work_of(drafter: Drafter | LookupDrafter) -> Work:
        return lambda number: timed_row(lambda: speculative(number, drafter), large.device)

    works = {f"ours, {name}": work_of(new_drafter()) for name, new_drafter in drafters_of(small, large).items()}
    return works | {"ours, plain": lambda number: timed_row(lambda: plain(number), large.device)}


def theirs(
    prompts: Sequence[list[int]],
    small: CausalLM,
    large: CausalLM,
    depth: int,
    sampling: Sampling,
    new_tokens: int = NEW_TOKENS,
) -> dict[str, Work]:
    """Return transformers' own ways: plain, assisted at its defaults and at our depth, prompt lookup."""
    drawn: dict[str, object] = {"do_sample": False}
    if sampling.temperature:
        drawn = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
        }
    settings = GenerationConfig(max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=0, **drawn)

    def generate(number: int, **options: object) -> tuple[int, Sequence[int]]:
        inputs = torch.tensor([prompts[number]], device=large.device)
        output = large.model.generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=settings, **options
        )
        return output.shape[1] - inputs.shape[1], ()

    def assisted(number: int, tokens: int, threshold: float) -> tuple[int, Sequence[int]]:
        config = small.model.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = tokens, "constant"
        config.assistant_confidence_threshold = threshold
        return generate(number, assistant_model=small.model)

    ways: dict[str, Callable[[int], tuple[int, Sequence[int]]]] = {
        "transformers, plain": generate,
        "transformers, assisted, its defaults": lambda number: assisted(number, 20, 0.4),
        f"transformers, assisted, depth {depth}": lambda number: assisted(number, depth, 0.0),
        "transformers, prompt lookup": lambda number: generate(number, prompt_lookup_num_tokens=LOOKUP_TOKENS),
    }

    def work_of(way: Callable[[int], tuple[int, Sequence[int]]]) -> Work:
        return lambda number: timed_row(lambda: way(number), large.device)

    return {name: work_of(way) for name, way in ways.items()}


def batch_work(rule: str, size: int, depth: int, precision: str) -> Work:
    """Return the work of a batch: twice as many requests as rows, at least four, with prompts of mixed length."""

    def work(number: int) -> Row:
        result = specfleet.run(
            specfleet.Scenario(name=rule),
            {
                "seed": number, "precision": precision, "batch.rule": rule_of(rule, size), "drafters.depth": depth,
                "workload.requests": max(2 * size, 4), "workload.prompt_tokens": {"low": 64, "high": 192},
                "workload.new_tokens": 64,
            },
        )  # fmt: skip
        rows = result.rows()
        done = rows[rows.event == "done"]
        steps = done.drop_duplicates("step")
        realigned_s = float(steps[steps.kind == "realign"].duration_s.sum())
        metrics = result.metrics
        return {
            RATE: metrics["throughput"].value, LENGTH: metrics["acceptance_length"].value + 1,
            "realign, % of steps": 100 * realigned_s / float(steps.duration_s.sum()),
        }  # fmt: skip

    return work
