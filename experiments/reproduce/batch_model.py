"""Batch Speculative Decoding Done Right: what the paper prints, what a round takes, and the runs that are simulated.

Times come from table 2, which prints the shares of one EqSpec round and the time of its verification. The rules are
`policies/aligned.py`. Requests are turns of Spec-Bench: their lengths follow quantiles of the 560 turns of its 480
conversations (question.jsonl of the benchmark's authors), in tokens of four characters each.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from specfleet.experiments.reproduce.runs import acceptance_behind, simulated
from specfleet.fleet.acceptance.models import committed_closed_form
from specfleet.fleet.files import write_file
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.metrics.tables import verifications_of
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run

SPEC_BENCH_TURNS = 560
QUANTILES = (4, 10, 12, 14, 17, 21, 24, 29, 34, 41, 47, 54, 63, 80, 177, 543, 736, 764, 802, 889, 1712)
"""Lengths in tokens at the levels 0, 0.05, ... 1."""


class AnswerLengths(NamedTuple):
    """Quantiles of the answers' lengths: levels from 0 to 1, and tokens at each; linear between."""

    levels: tuple[float, ...]
    tokens: tuple[float, ...]


def turn_tokens(most: int) -> list[int]:
    """Return lengths of as many turns, in tokens, shortest first: evenly over the levels, linear between quantiles.

    Those of more than `most` tokens are cut there.
    """
    lengths = np.interp(evenly(SPEC_BENCH_TURNS), np.linspace(0, 1, len(QUANTILES)), QUANTILES).round().astype(int)
    cut: list[int] = np.minimum(lengths, most).tolist()
    return cut


def write_lengths(path: Path, requests: int, answers: AnswerLengths, seed: int, most: int) -> None:
    """Write a file for `workload.lengths`: turns of at most `most` tokens and answers, each in a random order."""
    rng = np.random.default_rng(seed)
    prompts = np.resize(rng.permutation(turn_tokens(most)), requests)
    lengths = np.interp(rng.permutation(evenly(requests)), answers.levels, answers.tokens).round().astype(int)
    pairs = zip(prompts, np.maximum(lengths, 1), strict=True)
    rows = "".join(f"{prompt},{answer}\n" for prompt, answer in pairs)
    write_file(path, f"num_prefill_tokens,num_decode_tokens\n{rows}".encode())


def evenly(number: int) -> Any:
    """Return that many levels between 0 and 1, in the middle of as many equal parts; an array of floats."""
    return (np.arange(number) + 0.5) / number


DEPTH = 5  # section 4.1
# The authors' program counts a draft without a mismatch as its first four tokens and the target's own: the fifth is
# made, verified, and made again.
KEPT = DEPTH - 1
# Table 2: tokens a second, verifications, time of one in ms, shares of verification, drafting and overhead.
TABLE_2 = {"EqSpec": (95.6, 1469, 24.88, 0.449, 0.274, 0.277), "ExSpec": (156.4, 952, 29.13, 0.559, 0.295, 0.146)}
# Table 3: throughput in tokens a second, then latency in s at P50, P90 and P99.
TABLE_3 = {
    1: ((15.20, 6.70, 12.96, 16.53), (15.78, 6.08, 8.32, 9.42)),
    2: ((26.70, 7.96, 14.78, 19.06), (30.54, 9.75, 114.89, 134.03)),
    4: ((46.11, 9.46, 16.23, 19.13), (52.44, 8.01, 53.21, 70.35)),
    8: ((76.03, 11.26, 19.23, 22.50), (77.54, 9.16, 19.13, 33.93)),
}
# Overhead of EqSpec by batch size, as the paper prints it in several places.
OVERHEAD = {
    "text of section 4.3 (about)": {1: 0.13, 32: 0.40},
    "caption of figure 5 (up to)": {32: 0.38},
    "section 3.3": {8: 0.394, 16: 0.467},
}
GAIN = {("ExSpec", 8): 3.0}  # "up to 3x" over batch size 1 (abstract)
GROUPED = {("random", 2): 0.236}  # share of rounds without realignment, in the text beside figure 5c
GROUPED_WINDOW, GROUPED_TOKENS = 50, 50  # figure 5c: rows and new tokens in the script of the authors' program
TABLE_2_BATCH = 4  # not printed; the authors' program keeps a log of that run
AUTHORS_PROMPTS = 100  # of Spec-Bench, in the authors' example runs; W = 3 B
PROMPTS = 100  # that are simulated
PROMPT_TOKENS = {"low": 20, "high": 400}
TURNS = SPEC_BENCH_TURNS  # of Spec-Bench, that table 3 draws from
WINDOW, MAX_PROMPT_TOKENS = 32, 1024  # of table 3: defaults of the authors' program, which cuts longer prompts
SEEDS = 2
ROUNDS_OF_FIT = 4
# Calls of the authors' program in each layer of the target: for a row, and besides. A number that the host reads back
# from the GPU is three of them (take, copy, wait), a copy of a part of a row's keys or values three (from, to, copy).
CALLS_EQSPEC = (4 * 3 + 2 * 3, 8)  # where each row begins and ends, read back; new tensors
CALLS_EXSPEC = (2 * 3, 2)  # the host knows where; new tensors
CALLS_WRITE_BACK = 2 * 2  # a row's keys and values are split off and cut, in every round of ExSpec


class WorkloadFit(NamedTuple):
    """What table 2 says of the workload: acceptance, and the shortest and longest answer in tokens."""

    beta: float
    low: int
    high: int


def eqspec_times_ms() -> tuple[float, float, float]:
    """Return draft, verification and overhead of an EqSpec round, from table 2."""
    _, _, verify_ms, verify_share, draft_share, overhead_share = TABLE_2["EqSpec"]
    round_ms = verify_ms / verify_share
    return draft_share * round_ms, verify_ms, overhead_share * round_ms


def overhead_ms() -> tuple[float, float]:
    """Return overhead at batch size 1 and what each further row adds, from section 4.3's share and table 2's at 4."""
    draft_ms, verify_ms, at_batch_ms = eqspec_times_ms()
    share = OVERHEAD["text of section 4.3 (about)"][1]
    at_one_ms = share / (1 - share) * (draft_ms + verify_ms)
    return at_one_ms, (at_batch_ms - at_one_ms) / (TABLE_2_BATCH - 1)


@cache
def fitted() -> WorkloadFit:
    """Return acceptance and spread of the answers behind the tokens a verification of both rows of table 2.

    ExSpec's batches are full until the prompts run out, and show the acceptance. EqSpec's carry finished rows along,
    and show how far answers spread. Each round of the fit simulates both, and corrects both.
    """
    tokens_per_s, verifications, verify_ms, share, *_ = TABLE_2["EqSpec"]
    tokens = tokens_per_s * verifications * verify_ms / share / 1000
    wanted = {"EqSpec": tokens / verifications, "ExSpec": tokens / TABLE_2["ExSpec"][1]}
    mean = tokens / AUTHORS_PROMPTS
    beta, half = 0.5, mean / 2
    for _ in range(ROUNDS_OF_FIT):
        fit = spread_evenly(beta, mean, half)
        ours = {}
        for name, rows in (("EqSpec", eqspec(TABLE_2_BATCH)), ("ExSpec", exspec(TABLE_2_BATCH))):
            verified = verifications_of(run_batch(rows, fit=fit).columns())
            ours[name] = float((verified.acceptance_length + 1).sum()) / len(np.unique(verified.step))
        beta = acceptance_behind(committed_closed_form(beta, KEPT) * wanted["ExSpec"] / ours["ExSpec"], KEPT)
        full, wanted_full = ours["EqSpec"] / ours["ExSpec"], wanted["EqSpec"] / wanted["ExSpec"]
        spread = half * (1 / wanted_full - 1) / max(1 / full - 1, 0.01)
        half = min(max(spread, 1.0), mean - 1)
    return spread_evenly(beta, mean, half)


def spread_evenly(beta: float, mean: float, half: float) -> WorkloadFit:
    """Return a fit with answers spread evenly around a mean."""
    return WorkloadFit(beta, max(round(mean - half), 1), round(mean + half))


def run_batch(
    rows: dict[str, Any], seed: int = 0, verify_ms: float | None = None, fit: WorkloadFit | None = None, **workload: Any
) -> Run:
    """Simulate an offline run on Spec-Bench, or another workload. `rows`: keys of the target, its rule for rows."""
    draft_ms, own_verify_ms, _ = eqspec_times_ms()
    fit = fit or fitted()
    policy = policy_of(rows)
    realign, written_row_ms = realign_ms(policy)
    scattered_row_ms = 0.0  # of each further row in a verification of ExSpec, with separate caches (end of section 4.3)
    if not verify_ms and policy == "same-length":
        scattered_row_ms = (TABLE_2["ExSpec"][2] - TABLE_2["EqSpec"][2]) / (TABLE_2_BATCH - 1)
    mixed = {"low": fit.low, "high": fit.high}
    offline = {"requests": PROMPTS, "prompt_tokens": PROMPT_TOKENS, "new_tokens": mixed} | workload
    chosen = workload if "lengths" in workload else offline
    verify_s, further_row_s = (verify_ms or own_verify_ms) / 1000, (written_row_ms + scattered_row_ms) / 1000
    return simulated(
        name="batch",
        seed=seed,
        profile={
            "name": "batch-a100",
            "draft": {"base_s": draft_ms / 1000},
            "verify": {"base_s": verify_s + written_row_ms / 1000, "per_row_s": further_row_s},
            "realign": {"base_s": realign[0] / 1000, "per_row_s": realign[1] / 1000},
        },
        drafters={"depth": KEPT, "place": "target"},
        verifiers=rows,
        acceptance={"model": "geometric", "beta": fit.beta},
        workload=chosen | {"streams": chosen["requests"]},
    )


def policy_of(rows: dict[str, Any]) -> str:
    """Return the name of the rule for aligned rows; empty for rows of their own lengths."""
    return str(rows.get("aligned", {}).get("policy", ""))


def realign_ms(policy: str) -> tuple[tuple[float, float], float]:
    """Return realignment at batch size 1, what a further row adds to it, and what ExSpec writes back for a row.

    EqSpec's is what the paper prints; ExSpec's is as much shorter as it makes fewer calls.
    """
    at_one_ms, a_row_ms = overhead_ms()
    if policy != "same-length":
        return (at_one_ms, a_row_ms), 0.0
    a_row, besides = (ours / theirs for ours, theirs in zip(CALLS_EXSPEC, CALLS_EQSPEC, strict=True))
    own_row_ms = a_row_ms * a_row
    return ((at_one_ms - a_row_ms) * besides + own_row_ms, own_row_ms), a_row_ms * CALLS_WRITE_BACK / CALLS_EQSPEC[0]


def overhead_of(policy: str, metrics: dict[str, Metric], runs: list[Run]) -> float:
    """Return the share of time that is neither drafting nor verification: realignment, and what is written back."""
    verified = [verifications_of(run.columns()) for run in runs]
    rounds = [len(np.unique(of_run.step)) for of_run in verified]
    rows = float(np.mean([len(of_run) / steps for of_run, steps in zip(verified, rounds, strict=True)]))
    written_ms = realign_ms(policy)[1] * rows
    ended_s = [float(run.table["time_s"].to_numpy()[-1]) for run in runs]
    round_s = 1 / float(np.mean([steps / time_s for steps, time_s in zip(rounds, ended_s, strict=True)]))
    return metrics["realign_share"].value + written_ms / 1000 / round_s


def measured(rows: dict[str, Any], **more: Any) -> dict[str, Metric]:
    """Return the means of a rule's metrics over the seeds."""
    return combine([measure(run_batch(rows, seed, **more)) for seed in range(SEEDS)])


def grouped_share(B: int, window: int, prompt_tokens: dict[str, int]) -> float:
    """Return the share of ExSpec's rounds that need no realignment, on captions, as the authors' script runs them."""
    rows = {"max_num_seqs": B, "aligned": {"policy": "same-length", "window": max(window, B), "sort": True}}
    return measured(rows, prompt_tokens=prompt_tokens, new_tokens=GROUPED_TOKENS)["grouped_share"].value


def eqspec(B: int, fixed: bool = True) -> dict[str, Any]:
    """Return EqSpec's rule, offline; with `fixed` false online."""
    return {"max_num_seqs": B, "aligned": {"policy": "realign", "fixed": fixed}}


def exspec(B: int, window: int | None = None) -> dict[str, Any]:
    """Return ExSpec's rule; W = 3 B by default."""
    return {"max_num_seqs": B, "aligned": {"policy": "same-length", "window": window or 3 * B}}


def answers_of_table_3() -> AnswerLengths:
    """Return how long answers are: as EqSpec's latencies at batch size 1 spread, where no request waits.

    Their mean is that of table 2.
    """
    levels, latencies_s = (0.0, 0.5, 0.9, 0.99), (0.0, *TABLE_3[1][0][1:])
    longest_s = latencies_s[3] + (latencies_s[3] - latencies_s[2]) * (1.0 - levels[3]) / (levels[3] - levels[2])
    levels, latencies_s = (*levels, 1.0), (*latencies_s, longest_s)
    mean_s = float(np.mean(np.interp(evenly(1000), levels, latencies_s)))
    mean = (fitted().low + fitted().high) / 2
    return AnswerLengths(levels, tuple(mean * latency_s / mean_s for latency_s in latencies_s))


def run_turns(rows: dict[str, Any], seed: int, most_prompt_tokens: int = MAX_PROMPT_TOKENS) -> Run:
    """Simulate a run over the turns of Spec-Bench, in a random order."""
    with TemporaryDirectory() as folder:
        lengths = Path(folder) / "lengths.csv"
        write_lengths(lengths, TURNS, answers_of_table_3(), seed, most_prompt_tokens)
        return run_batch(rows, seed, requests=TURNS, lengths=str(lengths))


def service_latencies_s(run: Run) -> pd.Series:
    """Return the time from each request's first draft to its last token."""
    frame = run.frame()
    begun = frame[(frame.event == "start") & (frame.kind == "draft")].groupby(["tag", "request"]).time_s.min()
    ended = frame[(frame.event == "done") & (frame.kind == "verify")].groupby(["tag", "request"]).time_s.max()
    return (ended - begun).dropna()
