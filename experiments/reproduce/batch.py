"""Batch Speculative Decoding Done Right: table 2, figures 5 and 6, equation (1): its rules, realignment, speed-ups."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from specfleet.experiments.reproduce import batch_model as model
from specfleet.experiments.reproduce.rows import Kind, PaperRow, claim, fitted_if, reproduces, row
from specfleet.experiments.reproduce.runs import simulated
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.times.profile import HardwareProfile

GAIN, GROUPED, UNSETTLED = (model.PAPER[name] for name in ("gain", "grouped", "unsettled"))
GROUPED_WINDOW, GROUPED_TOKENS = 50, 50  # figure 5c: rows and new tokens in the script of the authors' program
LENGTHS = {"random": {"low": 8, "high": 24}, "equal": {"low": 16, "high": 16}}  # assumed, of captions (Multi30k)
SIZES = (1, 4, 8, 16, 32)
SERVED = 4  # requests of figure 6 over the batch size
# Pairs of figure 6 with a known shape: engine, target, drafter. Vicuna-7B has the shape of Llama-2-7B.
PAIRS = {
    ("vLLM", "Qwen3-8B and 0.6B"): ("vllm", "qwen3-8b@a100-80gb", "qwen3-0.6b@a100-80gb"),
    ("SGLang", "Vicuna-7B and EAGLE"): ("sglang", "llama-2-7b@a100-80gb", "eagle-llama-2-7b@a100-80gb"),
}


@reproduces(model.PAPER)
def batch_table2() -> Iterator[PaperRow]:
    """Table 2: EqSpec's round is fitted, ExSpec's throughput and overhead are predicted.

    The batch size was chosen by the tokens a verification of both rows, so neither's verifications count. Shares of
    verification and drafting follow from that of overhead, and from the times of both.
    """
    yield row("acceptance rate", {}, "fitted", None, model.fitted().beta)
    yield row("shortest answer, tokens", {}, "fitted", None, model.fitted().low)
    yield row("longest answer, tokens", {}, "fitted", None, model.fitted().high)
    for method, rows in model.both(model.TABLE_2_BATCH).items():
        paper, verify_ms = model.TABLE_2[method], model.TABLE_2[method]["verify_ms"]
        runs = [model.run_batch(rows, seed, verify_ms) for seed in range(model.SEEDS)]
        metrics, overhead = combine([measure(run) for run in runs]), model.overhead_of(model.policy_of(rows), runs)
        drafting, steps = metrics["draft_share"].value, float(np.mean([model.verifications(run)[0] for run in runs]))
        case, kind = {"method": method}, fitted_if(method == "EqSpec")
        follows: Kind = "fitted" if method == "EqSpec" else "identity"
        yield row("time of a verification, ms", case, "input", verify_ms, verify_ms)
        yield row("throughput, tokens/s", case, kind, paper["tokens_per_s"], metrics["throughput"].value)
        yield row("verifications", case, "fitted", paper["verifications"], steps)
        yield row("verification, share", case, follows, paper["verify_share"], 1 - overhead - drafting)
        yield row("drafting, share", case, follows, paper["draft_share"], drafting)
        yield row("overhead, share", case, kind, paper["overhead_share"], overhead)
    in_place = model.measured({"max_num_seqs": model.TABLE_2_BATCH})["throughput"].value
    yield row("throughput, tokens/s", {"method": "continuous"}, "predicted", None, in_place)


@reproduces(model.PAPER)
def batch_fig5a() -> Iterator[PaperRow]:
    """Figure 5a: throughput over that of the same method at batch size 1; the text names a few values."""
    tps: dict[str, dict[int, float]] = {}
    for B in (1, 2, 4, 8, 16, 32):
        rollback = {"max_num_seqs": B, "aligned": {"policy": "rollback"}}
        for method, rows in (model.both(B) | {"continuous": {"max_num_seqs": B}, "rollback": rollback}).items():
            ours = model.measured(rows, requests=model.PROMPTS + 8 * B)["throughput"].value
            tps.setdefault(method, {})[B] = ours
    larger = [B for B in tps["EqSpec"] if B > 1]
    for method, by_size in tps.items():
        for B in larger:
            paper, case = GAIN.get(method, {}).get(B), {"method": method, "B": B}
            note = "" if paper is None else UNSETTLED["more_than_three"]
            yield row("throughput over batch size 1", case, "predicted", paper, by_size[B] / by_size[1], note=note)
    for method, note in (("EqSpec", UNSETTLED["not_negative"]), ("ExSpec", "")):
        yield claim("scaling is negative beyond 8", {"method": method}, tps[method][16] < tps[method][8], note)
    yield from (claim("ExSpec is faster than EqSpec", {"B": B}, tps["ExSpec"][B] > tps["EqSpec"][B]) for B in larger)


@reproduces(model.PAPER)
def batch_fig5b() -> Iterator[PaperRow]:
    """Figure 5b: EqSpec's overhead share by batch size; the paper's own figures differ between places."""
    at_one_ms, a_row_ms = model.overhead_ms()
    yield row("overhead of a round at B = 1, ms", {}, "fitted", None, at_one_ms)
    yield row("overhead of each further row, ms", {}, "fitted", None, a_row_ms)
    first_printed: dict[int, float] = {}
    in_table_2 = {model.TABLE_2_BATCH: model.TABLE_2["EqSpec"]["overhead_share"]}
    for source, shares in (model.OVERHEAD | {"table 2 (batch size not printed)": in_table_2}).items():
        for B, paper in shares.items():
            case = {"B": B, "source": source}
            if B in first_printed:  # the paper says it twice, and counts once
                yield row("overhead, share of time, as printed first", case, "identity", first_printed[B], paper)
                continue
            first_printed[B] = paper
            ours = model.measured(model.eqspec(B))["realign_share"].value
            note = UNSETTLED["falls_at_32"] if B == 32 else ""
            yield row("overhead, share of time", case, fitted_if(B in (1, model.TABLE_2_BATCH)), paper, ours, note=note)


def grouped_share(B: int, lengths: str, window: int, sort: bool, beta: float | None = None) -> float:
    """Return the share of ExSpec's rounds that need no realignment, on captions, as the authors' script runs them.

    `window`: rows; `sort`: whether they enter by length; `beta`: acceptance, Spec-Bench's by default.
    """
    fit = model.fitted() if beta is None else model.fitted()._replace(beta=beta)
    rows = {"max_num_seqs": B, "aligned": {"policy": "same-length", "window": max(window, B), "sort": sort}}
    metrics = model.measured(rows, fit=fit, prompt_tokens=LENGTHS[lengths], new_tokens=GROUPED_TOKENS)
    return metrics["grouped_share"].value


@reproduces(model.PAPER)
def batch_fig5c() -> Iterator[PaperRow]:
    """Figure 5c: share of rounds without realignment, for captions of random and of equal length (Multi30k)."""
    for lengths in LENGTHS:
        for B in (1, 2, 4, 8, 16):
            case: dict[str, Any] = {"B": B, "lengths": lengths, "window": GROUPED_WINDOW, "sort": True}
            ours = grouped_share(**case)
            yield row("grouped rounds, share", case, "predicted", GROUPED.get(lengths, {}).get(B), ours)
            if (lengths, B) == ("equal", 8):
                yield claim("equal lengths keep grouping effective", case, ours > 0.5)
        for window in (8, 10):  # with an acceptance of 0.7 they have about the share that the paper prints
            case = {"B": 2, "lengths": lengths, "window": window, "sort": False}
            yield row("grouped rounds, share", case, "predicted", None, grouped_share(**case))
            paper, case = GROUPED.get(lengths, {}).get(2), case | {"beta": 0.7}
            yield row("grouped rounds, share", case, "fitted", paper, grouped_share(**case))
    for window in (2, 6, 12):
        case = {"B": 2, "lengths": "random", "window": window, "sort": True}
        yield row("grouped rounds, share", case, "predicted", None, grouped_share(**case))


def speedup(accepted: float, draft: float, verify: float, overhead: float) -> float:
    """Return S of equation (1). `accepted`: alpha k, tokens a round; the costs are in steps of the target alone."""
    return accepted / (draft + verify + overhead)


@reproduces(model.PAPER)
def batch_eq1() -> Iterator[PaperRow]:
    """Equation (1) by batch size, of simulated acceptance, against the simulated speed-up."""
    draft_ms, verify_ms, _ = model.eqspec_times_ms()
    at_one_ms, a_row_ms = model.overhead_ms()
    ours: dict[int, float] = {}
    for B in SIZES:
        metrics = model.measured(model.eqspec(B, fixed=False), requests=model.PROMPTS + 8 * B)
        costs = (draft_ms / verify_ms, 1.0, (at_one_ms + (B - 1) * a_row_ms) / verify_ms)
        accepted = metrics["acceptance_length"].value
        ours[B] = metrics["throughput"].value * verify_ms / 1000 / B
        yield row("speed-up, by equation (1)", {"B": B}, "identity", speedup(accepted, *costs), ours[B])
        whole = speedup(accepted + 1, *costs)
        yield row("speed-up, with the target's own token", {"B": B}, "identity", whole, ours[B])
    for B in SIZES[1:]:
        yield claim("a batch does not add to the speed-up of one row", {"B": B}, ours[B] <= ours[1])


@reproduces(model.PAPER)
def batch_fig6() -> Iterator[PaperRow]:
    """Figure 6: serving engines with speculation lag those without, the more so in larger batches."""
    for (name, models), (engine, target, draft) in PAIRS.items():
        profile = estimate(target, draft, engine=engine)
        gains = {B: served(profile, B, model.DEPTH) / served(profile, B, 0) for B in SIZES}
        case = {"engine": name, "models": models}
        for B, gain in gains.items():
            yield row("throughput with speculation over without", case | {"B": B}, "predicted", None, gain)
        yield claim("larger batches degrade it", case, gains[SIZES[-1]] < gains[1])
        if name == "vLLM":
            yield claim("speculation lags in the largest batch", case, gains[SIZES[-1]] < 1)
        else:
            yield claim("speculation lags in every batch", case, max(gains.values()) < 1)


def served(profile: HardwareProfile, B: int, depth: int) -> float:
    """Return the throughput of a target that serves B requests at a time; depth 0 is without speculation."""
    fit = model.fitted()
    run = simulated(
        name="batch-fig6", profile=profile, verifiers={"max_num_seqs": B},
        acceptance={"model": "geometric", "beta": fit.beta},
        drafters={"depth": depth, "place": "target"} if depth else {"count": 0},
        workload={
            "requests": SERVED * B + 8, "streams": B,
            "prompt_tokens": model.PROMPT_TOKENS, "new_tokens": {"low": fit.low, "high": fit.high},
        },
    )  # fmt: skip
    return measure(run)["throughput"].value
