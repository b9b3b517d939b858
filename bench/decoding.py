"""Tokens a second of the demo pair: every way to draft beside transformers' own ways, and batches by rule and size.

Contestants decode the same prompts in turn. On a cuda device `--eager` leaves out CUDA graphs.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

import specfleet
from bench.harness import Aim, Options, Report, Row, compared, run
from bench.speculative import decode_plain, decode_speculatively
from specfleet.engine.decoding.block import BlockDrafter
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import EagleDrafter
from specfleet.engine.decoding.eagle_files import load_head
from specfleet.engine.decoding.folders import DEMO_PAIR
from specfleet.engine.decoding.lookup import LookupDrafter
from specfleet.engine.decoding.models import PRECISIONS, CausalLM, load_model
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.engine.demo_pair.corpus import read_prompts
from specfleet.fleet.policies.shapes import dynamic, tree

CHAIN = "ours, chain"
TIMES_ASSISTED = 2.5  # of our chain, at least, on a GPU
RATE, LENGTH = "tokens/s", "accepted a round + 1"
PROMPT_TOKENS, NEW_TOKENS, LOOKUP_TOKENS = 128, 96, 5
SIZES = (1, 2, 4, 8, 16)
SMALL_TREE, DYNAMIC = tree(3, 1), dynamic(3, 10)
RULES: dict[str, dict[str, Any]] = {
    "continuous": {},
    "EqSpec": {"policy": "realign"},
    "EqSpec, online": {"policy": "realign", "fixed": False},
    "ExSpec": {"policy": "same-length"},
    "rollback": {"policy": "rollback"},
}
"""Batch rules by their names in tables: ours first, then those of Batch Speculative Decoding Done Right."""
KINDS = {"chain": "model", "EAGLE chain": "eagle", "block": "block"}  # what drafts for batches by the first rule

Way = Callable[[int], tuple[int, Sequence[int]]]
"""Decodes prompt i; returns the number of new tokens, and the accepted draft tokens of each round, if there are any."""
Work = Callable[[int], Row]
"""Decodes prompt i and returns its rate."""

OPTIONS: Options = {
    "--prompts": {"type": int, "default": 16, "help": "prompts that are decoded one at a time"},
    "--repetitions": {"type": int, "default": 8, "help": "runs of each batch"},
    "--sizes": {"type": int, "nargs": "*", "default": SIZES, "help": "rows of the batches; none for no batches"},
    "--threads": {"type": int, "default": 1, "help": "threads of torch, for every contestant"},
    "--depth": {"type": int, "default": 5, "help": "draft tokens of a round"},
    "--temperature": {"type": float, "default": 0.0, "help": "of one stream; 0 is greedy"},
    "--precision": {"choices": list(PRECISIONS), "default": "float32"},
    "--device": {"default": "", "help": "cpu or cuda; left out, cuda where there is one"},
    "--eager": {"action": "store_true", "help": "without CUDA graphs, for one stream"},
}


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
    given = (prompts, small, large, options.depth, sampling)
    works = timed(ours(*given) | theirs(*given), large.device)
    device = torch.cuda.get_device_name() if large.device.type == "cuda" else "cpu"
    where = f"{device}, {options.precision}, {options.threads} threads"
    rows = contest(works, options.prompts, CHAIN)
    tables, aims = {f"one stream, {where}": rows}, []
    if large.device.type == "cuda":
        assisted = max((row for row in rows if "assisted" in row["contestant"]), key=lambda row: row[RATE])
        ratio, low, high = (assisted[column] for column in (f"times {CHAIN}", "ratio from", "ratio to"))
        aims = [Aim(f"{assisted['contestant']}, times {CHAIN}", ratio, 1 / TIMES_ASSISTED, low, high)]
    for size in options.sizes:
        batch = size, options.depth, options.precision
        rules = {rule: partial(batch_row, rule, *batch) for rule in RULES}
        tables[f"batches of {size}, {where}"] = contest(rules, options.repetitions, "continuous")
        kinds = {name: partial(batch_row, "continuous", *batch, kind=kind) for name, kind in KINDS.items()}
        tables[f"drafts for batches of {size}, {where}"] = contest(kinds, options.repetitions, "chain")
    return Report(tables, aims)


def contest(works: dict[str, Work], repetitions: int, base: str) -> list[Row]:
    """Let every contestant decode prompt i before any decodes prompt i + 1; the first, a cold one, is decoded twice."""

    def in_turn(work: Work, numbers: Iterable[int]) -> Callable[[], Row]:
        each = iter(numbers)
        return lambda: work(next(each))

    numbered = {name: in_turn(work, chain([0], count())) for name, work in works.items()}
    return compared(run(numbered, repetitions, cold=1), RATE, base)


def timed(ways: dict[str, Way], device: torch.device) -> dict[str, Work]:
    """Return works that decode in those ways: new tokens a second, and mean accepted draft tokens of a round plus 1."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def timed_row(way: Way, number: int) -> Row:
        wait()
        started_s = time.perf_counter()
        tokens, accepted = way(number)
        wait()
        row = {RATE: tokens / (time.perf_counter() - started_s)}
        return row | {LENGTH: 1 + float(np.mean(accepted)) if accepted else float("nan")}

    return {name: partial(timed_row, way) for name, way in ways.items()}


def rule_of(name: str, size: int) -> dict[str, Any]:
    """Return the keys of targets with `size` rows by a rule; ExSpec's window holds three batches."""
    window = {"window": 3 * size} if name == "ExSpec" else {}
    return {"max_num_seqs": size} | ({"aligned": RULES[name] | window} if RULES[name] else {})


def drafters_of(small: CausalLM, large: CausalLM) -> dict[str, Drafter | LookupDrafter]:
    """Return every way to draft for the demo pair's target, by name."""
    head = load_head(DEMO_PAIR / "eagle", large.model, large.dtype, large.device)
    block = load_model("demo", "block", str(large.dtype).removeprefix("torch."), str(large.device))
    return {
        "prompt lookup": LookupDrafter(large.device),
        "chain": Drafter(small),
        "tree": Drafter(small, SMALL_TREE, "without-replacement"),
        "dynamic tree": Drafter(small, DYNAMIC, "match"),
        "EAGLE chain": EagleDrafter(head, large),
        "EAGLE dynamic tree": EagleDrafter(head, large, DYNAMIC, "match"),
        "block": BlockDrafter(block),
    }


def ours(
    prompts: Sequence[list[int]], small: CausalLM, large: CausalLM, depth: int, sampling: Sampling,
    new_tokens: int = NEW_TOKENS,
) -> dict[str, Way]:  # fmt: skip
    """Return all of the engine's ways to decode; every drafter comes with the rule that suits it."""
    cache = large.new_cache()
    drafters = drafters_of(small, large)

    def plain(number: int) -> tuple[int, Sequence[int]]:
        return len(decode_plain(Target(large, cache=cache), prompts[number], new_tokens, sampling, number)), ()

    def speculative(drafter: Drafter | LookupDrafter, number: int) -> tuple[int, Sequence[int]]:
        target = Target(large, drafter.rule, cache)
        tokens, accepted = decode_speculatively(target, drafter, prompts[number], new_tokens, depth, sampling, number)
        return len(tokens), accepted

    ways: dict[str, Way] = {f"ours, {name}": partial(speculative, drafter) for name, drafter in drafters.items()}
    return ways | {"ours, plain": plain}


def theirs(
    prompts: Sequence[list[int]], small: CausalLM, large: CausalLM, depth: int, sampling: Sampling,
    new_tokens: int = NEW_TOKENS,
) -> dict[str, Way]:  # fmt: skip
    """Return transformers' own ways: plain, assisted at its defaults and at our depth, prompt lookup."""
    drawn: dict[str, object] = {}
    if sampling.temperature:
        drawn = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
    settings = GenerationConfig(
        max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=0, do_sample=bool(drawn), **drawn
    )

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

    return {
        "transformers, plain": generate,
        "transformers, assisted, its defaults": lambda number: assisted(number, 20, 0.4),
        f"transformers, assisted, depth {depth}": lambda number: assisted(number, depth, 0.0),
        "transformers, prompt lookup": lambda number: generate(number, prompt_lookup_num_tokens=LOOKUP_TOKENS),
    }


def batch_row(rule: str, size: int, depth: int, precision: str, number: int, kind: str = "model") -> Row:
    """Run a batch: twice as many requests as rows, at least four, with prompts of mixed length."""
    result = specfleet.run(
        specfleet.Scenario(name=rule),
        {
            "seed": number, "precision": precision,
            "drafters.place": "target", "drafters.depth": depth, "drafters.kind": kind,
            **{f"verifiers.{key}": value for key, value in rule_of(rule, size).items()},
            "workload.requests": max(2 * size, 4), "workload.streams": max(2 * size, 4),
            "workload.prompt_tokens": {"low": 64, "high": 192},
            "workload.new_tokens": 64,
        },
    )  # fmt: skip
    rows, metrics = result.rows(), result.metrics
    steps = rows[rows.event == "done"].drop_duplicates("step")
    realigned_s = float(steps[steps.kind == "realign"].duration_s.sum())
    return {
        RATE: metrics["throughput"].value, LENGTH: metrics["acceptance_length"].value + 1,
        "realign, % of steps": 100 * realigned_s / float(steps.duration_s.sum()),
    }  # fmt: skip
